; The order of keys: NaN comes last.

define internal i1 @less.$dtype($T %a, $T %b) alwaysinline nounwind {
  %smaller = fcmp olt $T %a, %b
  %number = fcmp ord $T %a, %a
  %nan = fcmp uno $T %b, %b
  %last = and i1 %number, %nan
  %result = or i1 %smaller, %last
  ret i1 %result
}
