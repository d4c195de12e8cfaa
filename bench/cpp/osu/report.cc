#include "osu/report.h"

#include <iomanip>
#include <iostream>
#include <sstream>

namespace agoq::bench::osu {
namespace {

constexpr int kSizeWidth = 10;
constexpr int kFieldWidth = 18;

std::string with_two_digits(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << value;
  return text.str();
}

}  // namespace

Report::Report(const Program& program, const Settings& settings, bool prints)
    : kind_(program.kind), full_(settings.full), prints_(prints) {
  if (!prints_) return;
  const bool is_bandwidth = kind_ == Kind::kBandwidth;
  std::cout << "\n# OSU-style agoqcomm " << program.title
            << (is_bandwidth ? " Bandwidth Test\n" : " Latency Test\n");
  if (kind_ != Kind::kUnsized) std::cout << "# Datatype: " << to_string(settings.type) << ".\n";
  std::vector<std::string> columns;
  if (is_bandwidth) {
    columns = {"Bandwidth (MB/s)"};
  } else {
    columns = {"Avg Latency(us)"};
    if (full_) columns.insert(columns.end(), {"Min Latency(us)", "Max Latency(us)", "Iterations"});
  }
  if (settings.validate && kind_ != Kind::kUnsized) columns.emplace_back("Validation");
  print(kind_ == Kind::kUnsized ? "#" : "# Size", columns);
}

void Report::add(const Row& row) {
  if (!prints_) return;
  std::vector<std::string> fields;
  if (kind_ == Kind::kBandwidth) {
    fields = {with_two_digits(static_cast<double>(row.size) / row.average_us)};
  } else {
    fields = {with_two_digits(row.average_us)};
    if (full_) {
      fields.insert(fields.end(), {with_two_digits(row.minimum_us), with_two_digits(row.maximum_us),
                                   std::to_string(row.calls)});
    }
  }
  if (row.right) fields.emplace_back(*row.right ? "Pass" : "Fail");
  print(kind_ == Kind::kUnsized ? "" : std::to_string(row.size), fields);
}

void Report::print(const std::string& first, const std::vector<std::string>& fields) const {
  std::cout << std::left << std::setw(kSizeWidth) << first << std::right;
  for (const std::string& field : fields) std::cout << std::setw(kFieldWidth) << field;
  std::cout << std::endl;
}

}  // namespace agoq::bench::osu
