declare i32 @clock_gettime(i32, ptr)
define internal i64 @now() nounwind {
  %time = alloca [2 x i64]
  %status = call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}
