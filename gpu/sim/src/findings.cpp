#include "device.hpp"
#include <cstdio>

namespace {

struct Kind {
	const char *name;
	int error; // as the driver numbers them
};
// In the order of Fault.
const Kind kinds[] = {{"out-of-bounds", 700}, {"misaligned", 716}, {"uninitialised", 710}, {"race", 710}, {"divergent-barrier", 719}, {"divergent-shuffle", 719},
	{"use-after-free", 700}, {"other-device", 700}, {"host-access", 710}, {"leak", 0}, {"trap", 719}, {"timeout", 702}, {"host-memory", 719}};

std::mutex lock;
std::vector<std::string> lines;
u64 dropped;
constexpr size_t Most = 1000;

} // namespace

const char *className(Fault f) { return kinds[int(f)].name; }
int errorOf(Fault f) { return kinds[int(f)].error; }

void addFinding(const std::string &line) {
	std::lock_guard<std::mutex> g(lock);
	if (lines.size() < Most) lines.push_back(line);
	else dropped++;
	if (!settings().quiet) fprintf(stderr, "lockstep simulator: %s\n", line.c_str());
}

// lockstep_simulator_findings gives all findings so far, one a line. The text is the
// thread's until its next call.
extern "C" __attribute__((visibility("default"))) const char *lockstep_simulator_findings(void) {
	static thread_local std::string text;
	std::lock_guard<std::mutex> g(lock);
	text.clear();
	for (auto &l : lines) text += l + "\n";
	if (dropped) text += "and " + std::to_string(dropped) + " more\n";
	return text.c_str();
}

extern "C" __attribute__((visibility("default"))) void lockstep_simulator_forget_findings(void) {
	std::lock_guard<std::mutex> g(lock);
	lines.clear();
	dropped = 0;
}
