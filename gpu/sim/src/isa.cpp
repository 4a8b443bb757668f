#include "device.hpp"

// isa is chosen once: the best that the processor has. LOCKSTEP_SIM_ISA bounds it, for
// tests.
const Isa &isa() {
	static const Isa &chosen = []() -> const Isa & {
#ifdef __x86_64__
		__builtin_cpu_init();
		bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
		bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
		int most = settings().isa ? settings().isa : 3;
		if (avx512 && most >= 3) return isaAvx512;
		if (avx2 && most >= 2) return isaAvx2;
#endif
		return isaGeneric;
	}();
	return chosen;
}
