declare i64 @pthread_self()
define internal i64 @self() nounwind {
  %name = call i64 @pthread_self()
  ret i64 %name
}
