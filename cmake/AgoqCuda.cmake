# Whether this build has CUDA kernels, and how nvcc compiles them.
#
#   AGOQ_CUDA         AUTO: with CUDA where nvcc works; ON: required; OFF: never
#   AGOQ_CUDA_ARCHS   machine code for these, and PTX of the newest for what comes later
#   AGOQ_WITH_CUDA    the answer, for the rest of the build
set(AGOQ_CUDA AUTO CACHE STRING "CUDA kernels: AUTO, ON or OFF")
set_property(CACHE AGOQ_CUDA PROPERTY STRINGS AUTO ON OFF)
set(AGOQ_CUDA_ARCHS "80-real;90-real;100" CACHE STRING "CUDA architectures, as CMake names them")

set(AGOQ_WITH_CUDA OFF)
set(agoq_cuda_reason "AGOQ_CUDA is OFF")
if(AGOQ_CUDA STREQUAL "AUTO" AND AGOQ_SANITIZE)
  set(agoq_cuda_reason "the sanitizers of AGOQ_SANITIZE know no device code")
elseif(AGOQ_CUDA)  # AUTO and ON
  include(CheckLanguage)
  # Before the language is enabled: the default would be nvcc's own, one old architecture.
  set(CMAKE_CUDA_ARCHITECTURES "${AGOQ_CUDA_ARCHS}")
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # Before 3.26 CMake does not know that nvcc 12 and later compile C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(AGOQ_WITH_CUDA ON)
  elseif(AGOQ_CUDA STREQUAL "AUTO")
    set(agoq_cuda_reason "no nvcc that works was found; AGOQ_CUDA=ON makes that an error")
  else()
    message(FATAL_ERROR "AGOQ_CUDA=${AGOQ_CUDA}, but no nvcc that works was found; set "
      "CMAKE_CUDA_COMPILER or CUDACXX to one, or AGOQ_CUDA=OFF")
  endif()
endif()
if(AGOQ_WITH_CUDA)
  message(STATUS "CUDA kernels for ${AGOQ_CUDA_ARCHS}, by nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
else()
  message(STATUS "No CUDA kernels: ${agoq_cuda_reason}")
endif()

# The kernels' targets link the static runtime, so that the library needs no CUDA library to load and
# runs without a driver.
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_SEPARABLE_COMPILATION OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
