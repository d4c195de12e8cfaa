# Sources of src/transport, one line a file.
target_sources(agoqcomm PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/inproc/group.cc
  ${CMAKE_CURRENT_LIST_DIR}/inproc/inproc_transport.cc)

target_sources(agoqcomm PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/auto/auto_transport.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/arguments.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/buffer_pool.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/endpoint.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/hello.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/host_identity.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/mesh_transport.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/receive_table.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/rendezvous.cc
  ${CMAKE_CURRENT_LIST_DIR}/mesh/send_memory.cc
  ${CMAKE_CURRENT_LIST_DIR}/shm/arena.cc
  ${CMAKE_CURRENT_LIST_DIR}/shm/segment.cc
  ${CMAKE_CURRENT_LIST_DIR}/shm/shm_link.cc
  ${CMAKE_CURRENT_LIST_DIR}/shm/shm_mesh.cc
  ${CMAKE_CURRENT_LIST_DIR}/shm/shm_transport.cc
  ${CMAKE_CURRENT_LIST_DIR}/store/store_server.cc
  ${CMAKE_CURRENT_LIST_DIR}/store/tcp_store.cc
  ${CMAKE_CURRENT_LIST_DIR}/tcp/local_address.cc
  ${CMAKE_CURRENT_LIST_DIR}/tcp/tcp_link.cc
  ${CMAKE_CURRENT_LIST_DIR}/tcp/tcp_mesh.cc
  ${CMAKE_CURRENT_LIST_DIR}/tcp/tcp_transport.cc
  ${CMAKE_CURRENT_LIST_DIR}/transport.cc)

# Device memory. NCCL is looked for at run time and never linked.
target_sources(agoqcomm PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/device/exchange_check.cc
  ${CMAKE_CURRENT_LIST_DIR}/device_inproc/device_inproc_transport.cc
  ${CMAKE_CURRENT_LIST_DIR}/device_staging/host_exchange.cc
  ${CMAKE_CURRENT_LIST_DIR}/device_staging/staging_transport.cc
  ${CMAKE_CURRENT_LIST_DIR}/nccl/nccl_library.cc
  ${CMAKE_CURRENT_LIST_DIR}/nccl/nccl_transport.cc)
target_link_libraries(agoqcomm PRIVATE ${CMAKE_DL_LIBS})
