# The codec, and what the whole core shares (types, errors, version).
target_sources(agoqcomm PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/../error.cc
  ${CMAKE_CURRENT_LIST_DIR}/../types.cc
  ${CMAKE_CURRENT_LIST_DIR}/../version.cc
  ${CMAKE_CURRENT_LIST_DIR}/argument_checks.cc
  ${CMAKE_CURRENT_LIST_DIR}/block_format.cc
  ${CMAKE_CURRENT_LIST_DIR}/codec.cc
  ${CMAKE_CURRENT_LIST_DIR}/codec_threads.cc
  ${CMAKE_CURRENT_LIST_DIR}/thread_count.cc
  ${CMAKE_CURRENT_LIST_DIR}/cpu_isa.cc
  ${CMAKE_CURRENT_LIST_DIR}/cuda_codec.cc
  ${CMAKE_CURRENT_LIST_DIR}/cuda_row_codec.cc
  ${CMAKE_CURRENT_LIST_DIR}/row_checks.cc
  ${CMAKE_CURRENT_LIST_DIR}/row_codec.cc
  ${CMAKE_CURRENT_LIST_DIR}/row_layout.cc
  ${CMAKE_CURRENT_LIST_DIR}/single_block.cc
  ${CMAKE_CURRENT_LIST_DIR}/stochastic.cc
  ${CMAKE_CURRENT_LIST_DIR}/wire_layout.cc
  ${CMAKE_CURRENT_LIST_DIR}/cpu/scalar.cc
  ${CMAKE_CURRENT_LIST_DIR}/cpu/scalar_rows.cc)

# Each ISA's files alone are compiled for that ISA; codec.cc calls into them only where the CPU has it.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(agoq_avx2_options "-mavx2;-mf16c;-mfma")
  # gcc 12 takes its own header's undefined vectors for a mistake of ours (its PR 105593).
  set(agoq_avx512_options
    "-mavx2;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
  foreach(isa avx2 avx512)
    foreach(part int8 four_bits six_bits rows)
      set(source ${CMAKE_CURRENT_LIST_DIR}/cpu/${isa}_${part}.cc)
      target_sources(agoqcomm PRIVATE ${source})
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${agoq_${isa}_options}")
    endforeach()
  endforeach()
endif()

# One .cu a format. The static runtime's symbols stay inside the library.
if(AGOQ_WITH_CUDA)
  target_sources(agoqcomm PRIVATE
    ${CMAKE_CURRENT_LIST_DIR}/cuda/device.cu
    ${CMAKE_CURRENT_LIST_DIR}/cuda/e2m3.cu
    ${CMAKE_CURRENT_LIST_DIR}/cuda/fp4.cu
    ${CMAKE_CURRENT_LIST_DIR}/cuda/int4.cu
    ${CMAKE_CURRENT_LIST_DIR}/cuda/int6.cu
    ${CMAKE_CURRENT_LIST_DIR}/cuda/int8.cu
    ${CMAKE_CURRENT_LIST_DIR}/cuda/launch.cc
    ${CMAKE_CURRENT_LIST_DIR}/cuda/runtime.cc)
  # Named although CMake would add it: users of a static libagoqcomm must link it too.
  target_link_libraries(agoqcomm PRIVATE CUDA::cudart_static)
  target_link_options(agoqcomm PRIVATE LINKER:--exclude-libs,libcudart_static.a)
else()
  target_sources(agoqcomm PRIVATE ${CMAKE_CURRENT_LIST_DIR}/cuda/without_cuda.cc)
endif()
