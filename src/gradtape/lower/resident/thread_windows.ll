declare i32 @GetCurrentThreadId()
define internal i64 @self() nounwind {
  %name = call i32 @GetCurrentThreadId()
  %wide = zext i32 %name to i64
  ret i64 %wide
}
