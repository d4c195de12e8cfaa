# agoq_flags: what every target of this project is compiled with.
#
# The arithmetic is the file format, so the compiler may neither fuse a*b+c nor reorder: gcc contracts
# across inlined functions even in ISO mode, and -ffast-math would also turn on flush-to-zero.
add_library(agoq_flags INTERFACE)
set(agoq_cxx_flags
  -ffp-contract=off -fno-fast-math -fno-math-errno -fno-trapping-math -Wall -Wextra -Wpedantic)
target_compile_options(agoq_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${agoq_cxx_flags}>"
  "$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;-Xcompiler=-ffp-contract=off,-Wall,-Wextra>")
if(AGOQ_SANITIZE)
  list(JOIN AGOQ_SANITIZE "," sanitizers)
  target_compile_options(agoq_flags INTERFACE
    -fsanitize=${sanitizers} -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g)
  target_link_options(agoq_flags INTERFACE -fsanitize=${sanitizers})
endif()
