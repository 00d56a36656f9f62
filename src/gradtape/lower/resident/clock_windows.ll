declare i64 @GetTickCount64()
define internal i64 @now() nounwind {
  %milliseconds = call i64 @GetTickCount64()
  %sum = mul i64 %milliseconds, 1000000
  ret i64 %sum
}
