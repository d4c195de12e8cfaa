# Sources of src/collective and of what composes it, one line a file.
target_sources(agoqcomm PRIVATE
  ${CMAKE_CURRENT_LIST_DIR}/all_gather.cc
  ${CMAKE_CURRENT_LIST_DIR}/all_reduce.cc
  ${CMAKE_CURRENT_LIST_DIR}/all_to_all.cc
  ${CMAKE_CURRENT_LIST_DIR}/call_driver.cc
  ${CMAKE_CURRENT_LIST_DIR}/call_label.cc
  ${CMAKE_CURRENT_LIST_DIR}/chunk_plan.cc
  ${CMAKE_CURRENT_LIST_DIR}/device_collectives.cc
  ${CMAKE_CURRENT_LIST_DIR}/device_lanes.cc
  ${CMAKE_CURRENT_LIST_DIR}/device_slots.cc
  ${CMAKE_CURRENT_LIST_DIR}/device_steps.cc
  ${CMAKE_CURRENT_LIST_DIR}/exact_exchange.cc
  ${CMAKE_CURRENT_LIST_DIR}/exact_reduce.cc
  ${CMAKE_CURRENT_LIST_DIR}/label_check.cc
  ${CMAKE_CURRENT_LIST_DIR}/one_shot_all_reduce.cc
  ${CMAKE_CURRENT_LIST_DIR}/quantized_exchange.cc
  ${CMAKE_CURRENT_LIST_DIR}/reduce_scatter.cc
  ${CMAKE_CURRENT_LIST_DIR}/segment_exchange.cc
  ${CMAKE_CURRENT_LIST_DIR}/step_window.cc
  ${CMAKE_CURRENT_LIST_DIR}/../call_arguments.cc
  ${CMAKE_CURRENT_LIST_DIR}/../communicator.cc
  ${CMAKE_CURRENT_LIST_DIR}/../communicator_impl.cc
  ${CMAKE_CURRENT_LIST_DIR}/../device_communicator.cc
  ${CMAKE_CURRENT_LIST_DIR}/../exact_reason.cc
  ${CMAKE_CURRENT_LIST_DIR}/../options.cc)
