; The order of keys.

define internal i1 @less.$dtype($T %a, $T %b) alwaysinline nounwind {
  %result = icmp $less $T %a, %b
  ret i1 %result
}
