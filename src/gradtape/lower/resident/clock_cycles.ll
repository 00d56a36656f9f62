declare i64 @llvm.readcyclecounter()
define internal i64 @now() alwaysinline nounwind {
  %ticks = call i64 @llvm.readcyclecounter()
  ret i64 %ticks
}
