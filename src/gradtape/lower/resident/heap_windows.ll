declare ptr @_aligned_malloc(i64, i64)
declare void @_aligned_free(ptr)

define internal ptr @heap_allocate(i64 %align, i64 %size) nounwind {
  %block = call ptr @_aligned_malloc(i64 %size, i64 %align)
  ret ptr %block
}

define internal void @heap_free(ptr %block) nounwind {
  call void @_aligned_free(ptr %block)
  ret void
}

define internal void @request_huge_pages(ptr %block, i64 %size) nounwind {
  ret void
}

