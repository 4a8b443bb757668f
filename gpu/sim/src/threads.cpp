// Threads that help with launches of several blocks.
#include "launch.hpp"
#include <algorithm>
#include <condition_variable>
#include <list>
#include <system_error>
#include <thread>

namespace {

struct Job {
	void (*work)(void *);
	void *arg;
	int wanted, working = 0;
};

// Pool never ends: its threads are there until the process ends.
struct Pool {
	std::mutex lock;
	std::condition_variable wake, left;
	std::list<Job *> jobs;
	int threads = 0;

	void helper() {
		std::unique_lock<std::mutex> g(lock);
		for (;;) {
			wake.wait(g, [&] { return !jobs.empty(); });
			Job *j = jobs.front();
			if (!--j->wanted) jobs.pop_front();
			j->working++;
			g.unlock();
			j->work(j->arg);
			g.lock();
			j->working--;
			left.notify_all();
		}
	}
};

Pool &pool() {
	static Pool *p = new Pool;
	return *p;
}

} // namespace

// Who calls works too, and does not wait for helpers that have not begun: a small launch
// is over before a thread wakes.
void onThreads(int most, void (*work)(void *), void *arg) {
	int helpers = std::min(most, settings().threads) - 1;
	if (helpers <= 0) return work(arg);
	Pool &p = pool();
	Job j{work, arg, helpers};
	{
		std::lock_guard<std::mutex> g(p.lock);
		try {
			for (; p.threads < settings().threads - 1; p.threads++) std::thread([&p] { p.helper(); }).detach();
		} catch (std::system_error &) { // the system gives no more: there are fewer
		}
		p.jobs.push_back(&j);
	}
	p.wake.notify_all();
	work(arg);
	std::unique_lock<std::mutex> g(p.lock);
	p.jobs.remove(&j);
	p.left.wait(g, [&] { return !j.working; });
}
