// The holder of classes whose destructor joins threads.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <pybind11/pybind11.h>

#include <utility>

namespace agoq {

/// An intrusive_ptr that drops its reference without the GIL. The threads that a backend's
/// destructor joins may need the GIL themselves, to drop the last reference to a tensor. torch's
/// own holder of this kind is private to it.
template <typename T>
class NoGilPtr {
 public:
  NoGilPtr() = default;
  explicit NoGilPtr(T* raw) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(raw)) {}
  NoGilPtr(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}  // NOLINT: a holder
  NoGilPtr(const NoGilPtr&) = default;
  NoGilPtr(NoGilPtr&&) noexcept = default;
  NoGilPtr& operator=(const NoGilPtr&) = default;
  NoGilPtr& operator=(NoGilPtr&&) noexcept = default;
  ~NoGilPtr() {
    if (pointer_ && PyGILState_Check()) {
      pybind11::gil_scoped_release without_gil;
      pointer_.reset();
    }
  }

  T* get() const { return pointer_.get(); }
  T* operator->() const { return pointer_.get(); }
  T& operator*() const { return *pointer_; }
  operator c10::intrusive_ptr<T>() const { return pointer_; }  // NOLINT: a holder

 private:
  c10::intrusive_ptr<T> pointer_;
};

}  // namespace agoq

PYBIND11_DECLARE_HOLDER_TYPE(T, c10::intrusive_ptr<T>, true)
PYBIND11_DECLARE_HOLDER_TYPE(T, agoq::NoGilPtr<T>, true)
