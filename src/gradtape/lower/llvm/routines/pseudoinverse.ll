; The identity: the pseudoinverse itself comes from the singular values.
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i1 @pseudoinverse.$dtype(
  ptr noalias %from, ptr noalias %to, ptr noalias %spare, i64 %m, i64 %n
) noinline nounwind {
entry:
  %size = mul i64 %m, %n
  %bytes = mul i64 %size, $itemsize
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  ret i1 false
}
