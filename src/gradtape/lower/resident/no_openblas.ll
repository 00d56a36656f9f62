define i32 @get() nounwind {
  ret i32 1
}
define void @set(i32 %threads) nounwind {
  ret void
}
