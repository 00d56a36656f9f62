; A function inside of one that sets the number of threads of BLAS to that of kernels, and back.
declare i32 @"gradtape.blas_get"()
declare void @"gradtape.blas_set"(i32)
@"gradtape.blas_threads" = external global i32

define ${linkage}i32 @$name($parameters) nounwind {
entry:
  %wanted = load i32, ptr @"gradtape.blas_threads"
  %former = call i32 @"gradtape.blas_get"()
  %same = icmp eq i32 %former, %wanted
  br i1 %same, label %run, label %limit
limit:
  call void @"gradtape.blas_set"(i32 %wanted)
  br label %run
run:
  %status = call i32 @$program($arguments)
  br i1 %same, label %over, label %restore
restore:
  call void @"gradtape.blas_set"(i32 %former)
  br label %over
over:
  ret i32 %status
}
