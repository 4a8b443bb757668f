// What the environment says: each variable is what it may be, or nothing starts.
#include "device.hpp"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <unistd.h>

namespace {

int processors() {
	cpu_set_t set;
	return sched_getaffinity(0, sizeof set, &set) ? 1 : std::min(CPU_COUNT(&set), 256);
}

// Environment reads variables; the first that is not what it may be is kept.
struct Environment {
	std::string wrong;
	std::vector<std::string> known;

	const char *get(const char *name) {
		known.push_back(name);
		const char *v = getenv(name);
		return v && *v ? v : nullptr;
	}
	void refuse(const char *name, const char *value, const std::string &rule) {
		if (wrong.empty()) wrong = std::string(name) + "=\"" + value + "\": it must be " + rule + ", or not be set";
	}

	// unknown refuses variables of the simulator that nobody has asked for.
	void unknown() {
		for (char **e = environ; *e; e++) {
			std::string v = *e, name = v.substr(0, v.find('='));
			if (name.compare(0, 13, "LOCKSTEP_SIM_") || std::find(known.begin(), known.end(), name) != known.end() || !wrong.empty()) continue;
			wrong = name + ": no such variable; known are";
			for (auto &k : known) wrong += " " + k;
		}
	}

	// number is decimal digits and, where it may be one of bytes, K, M or G.
	u64 number(const char *name, u64 otherwise, u64 least, u64 most, const char *rule, bool ofBytes = false) {
		const char *v = get(name);
		if (!v) return otherwise;
		u64 n = 0;
		const char *p = v;
		bool ok = *p >= '0' && *p <= '9';
		for (; *p >= '0' && *p <= '9'; p++) ok = ok && !__builtin_mul_overflow(n, u64(10), &n) && !__builtin_add_overflow(n, u64(*p - '0'), &n);
		if (ofBytes && *p) {
			const char *units = "KMG", *unit = strchr(units, *p);
			ok = ok && unit && !__builtin_mul_overflow(n, u64(1) << 10 * (unit - units + 1), &n);
			p++;
		}
		if (ok && !*p && n >= least && n <= most) return n;
		refuse(name, v, rule);
		return otherwise;
	}

	// word gives the place of a value in a list, 0 where there is none.
	size_t word(const char *name, std::initializer_list<const char *> known, const char *rule) {
		const char *v = get(name);
		size_t k = 0;
		for (auto *w : known)
			if (++k && v && !strcmp(v, w)) return k;
		if (v) refuse(name, v, rule);
		return 0;
	}
};

} // namespace

Settings &settings() {
	static Settings s = [] {
		Settings s;
		Environment e;
		s.devices = int(e.number("LOCKSTEP_SIM_DEVICES", 2, 1, MaxDevices, "a number from 1 to 16"));
		s.memory = e.number("LOCKSTEP_SIM_MEMORY", u64(2) << 30, 1 << 20, u64(64) << 30, "bytes from 1M to 64G, with K, M or G or without", true);
		s.threads = int(e.number("LOCKSTEP_SIM_THREADS", u64(processors()), 1, 256, "a number from 1 to 256"));
		s.checks = e.word("LOCKSTEP_SIM_CHECKS", {"none", "all"}, "all or none") != 1;
		s.isa = int(e.word("LOCKSTEP_SIM_ISA", {"generic", "avx2", "avx512"}, "generic, avx2 or avx512"));
		s.budget = e.number("LOCKSTEP_SIM_BUDGET", u64(1) << 36, 1, ~u64(0), "a number from 1 on");
		s.quiet = e.word("LOCKSTEP_SIM_QUIET", {"1", "0"}, "0 or 1") == 1;
		e.unknown();
		s.wrong = e.wrong;
		return s;
	}();
	return s;
}
