# agoqcomm::mpi, a library beside agoqcomm, so that only those who ask for it link MPI.
#
# The mpi transport stands on src/transport/mesh, whose symbols the shared agoqcomm hides: it takes
# those objects in once more. In a static build they are found in agoqcomm itself.
add_library(agoqcomm_mpi_transport OBJECT
  ${CMAKE_CURRENT_LIST_DIR}/mpi_group.cc
  ${CMAKE_CURRENT_LIST_DIR}/mpi_link.cc
  ${CMAKE_CURRENT_LIST_DIR}/mpi_transport.cc
  ${CMAKE_CURRENT_LIST_DIR}/orphans.cc)
target_include_directories(agoqcomm_mpi_transport PRIVATE include src)
target_link_libraries(agoqcomm_mpi_transport PRIVATE agoq_flags MPI::MPI_CXX)

add_library(agoqcomm_mpi $<TARGET_OBJECTS:agoqcomm_mpi_transport>)
add_library(agoqcomm::mpi ALIAS agoqcomm_mpi)
if(BUILD_SHARED_LIBS)
  target_sources(agoqcomm_mpi PRIVATE
    $<FILTER:$<TARGET_OBJECTS:agoqcomm>,INCLUDE,/transport/mesh/>)
endif()
target_link_libraries(agoqcomm_mpi
  PUBLIC agoqcomm
  PRIVATE $<BUILD_INTERFACE:agoq_flags> MPI::MPI_CXX)
set_target_properties(agoqcomm_mpi PROPERTIES
  LINKER_LANGUAGE CXX
  EXPORT_NAME mpi VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
  INSTALL_RPATH "$ORIGIN")

install(TARGETS agoqcomm_mpi EXPORT agoqcomm_mpi_targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT agoqcomm_mpi_targets NAMESPACE agoqcomm::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/agoqcomm)
