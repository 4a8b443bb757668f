// Streams and events. Nothing runs before something waits for it: what a program may not
// rely on, it does not get.
#include "driver.hpp"
#include <algorithm>
#include <chrono>

namespace {

double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class T> bool alive(T *h) { return driver().handles.has(h); }

} // namespace

CUstream streamOf(CUctx_st *c, CUstream s) {
	// 1 and 2 are the legacy stream and the one of the thread.
	if (!s || s == CUstream(1) || s == CUstream(2)) return c->null;
	return alive(s) ? s : nullptr;
}

// submit queues an operation. The stream without a handle waits for all others that do
// not say otherwise, and they for it.
CUresult submit(Call &c, CUstream handle, Operation op, u64 *number) {
	CUstream s = streamOf(c.context, handle);
	if (!s) return CUDA_ERROR_INVALID_HANDLE;
	CUctx_st *ctx = s->context;
	if (s == ctx->null) {
		for (auto *o : ctx->streams)
			if (!(o->flags & CU_STREAM_NON_BLOCKING) && o->done < o->queued) op.after.push_back({o, o->queued});
	} else if (!(s->flags & CU_STREAM_NON_BLOCKING) && ctx->null->done < ctx->null->queued) {
		op.after.push_back({ctx->null, ctx->null->queued});
	}
	s->queued++;
	if (number) *number = s->queued;
	if (op.record) {
		op.record->recorded = true;
		op.record->at = {s, s->queued};
	}
	s->queue.push_back(std::move(op));
	return CUDA_SUCCESS;
}

// await has one thread run a stream at a time. Two of them do not wait for each other:
// an operation waits only for such as were queued before it.
void await(Guard &g, CUstream s, u64 count) {
	while (s->done < count) {
		if (s->running || s->queue.empty()) {
			driver().changed.wait(g);
			continue;
		}
		s->running = true;
		Operation op = std::move(s->queue.front());
		s->queue.pop_front();
		for (auto &a : op.after) await(g, a.stream, a.count);
		CUctx_st *ctx = s->context;
		if (op.run && !ctx->error) {
			g.unlock();
			int e = op.run();
			g.lock();
			if (e && !ctx->error) ctx->error = e;
		}
		if (op.record) op.record->time = now();
		s->done++;
		s->running = false;
		driver().changed.notify_all();
	}
}

void awaitContext(Guard &g, CUctx_st *c) {
	std::vector<CUstream> all(c->streams.begin(), c->streams.end());
	all.push_back(c->null);
	std::vector<u64> counts;
	for (auto *s : all) counts.push_back(s->queued);
	for (size_t k = 0; k < all.size(); k++) await(g, all[k], counts[k]);
}

extern "C" {

CUresult cuStreamCreate(CUstream *s, unsigned flags) { return cuStreamCreateWithPriority(s, flags, 0); }

CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
	Call c;
	if (c.error) return c.error;
	if (!s || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
	*s = new CUstream_st;
	(*s)->context = c.context;
	(*s)->flags = flags;
	(*s)->priority = std::max(-5, std::min(0, priority));
	c.context->streams.insert(*s);
	driver().handles.add(*s);
	return CUDA_SUCCESS;
}

// cuStreamDestroy runs what is queued. The object stays: events may name it.
CUresult cuStreamDestroy(CUstream s) {
	Call c;
	if (!c.context) return c.error;
	if (!alive(s)) return CUDA_ERROR_INVALID_HANDLE;
	await(c.guard, s, s->queued);
	s->context->streams.erase(s);
	driver().handles.erase(s);
	return CUresult(s->context->error);
}

CUresult cuStreamSynchronize(CUstream handle) {
	Call c;
	if (c.error) return c.error;
	CUstream s = streamOf(c.context, handle);
	if (!s) return CUDA_ERROR_INVALID_HANDLE;
	if (s == c.context->null)
		for (auto *o : std::set<CUstream>(c.context->streams))
			if (!(o->flags & CU_STREAM_NON_BLOCKING)) await(c.guard, o, o->queued);
	await(c.guard, s, s->queued);
	return CUresult(s->context->error);
}

// cuStreamQuery runs what is queued as well, or who asks until it is done would ask for
// ever; the first answer is that it is not.
CUresult cuStreamQuery(CUstream handle) {
	Call c;
	if (c.error) return c.error;
	CUstream s = streamOf(c.context, handle);
	if (!s) return CUDA_ERROR_INVALID_HANDLE;
	if (s->done >= s->queued) return CUDA_SUCCESS;
	await(c.guard, s, s->queued);
	return s->context->error ? CUresult(s->context->error) : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
	Call c;
	if (c.error) return c.error;
	if (!alive(e)) return CUDA_ERROR_INVALID_HANDLE;
	if (!e->recorded) return CUDA_SUCCESS;
	Operation op;
	op.after.push_back(e->at);
	return submit(c, s, std::move(op));
}

CUresult cuStreamGetPriority(CUstream handle, int *p) {
	Call c;
	CUstream s = c.context ? streamOf(c.context, handle) : nullptr;
	if (c.error || !s) return c.error ? c.error : CUDA_ERROR_INVALID_HANDLE;
	if (!p) return CUDA_ERROR_INVALID_VALUE;
	*p = s->priority;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *f) {
	Call c;
	CUstream s = c.context ? streamOf(c.context, handle) : nullptr;
	if (c.error || !s) return c.error ? c.error : CUDA_ERROR_INVALID_HANDLE;
	if (!f) return CUDA_ERROR_INVALID_VALUE;
	*f = s->flags;
	return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *e, unsigned flags) {
	Call c;
	if (c.error) return c.error;
	if (!e) return CUDA_ERROR_INVALID_VALUE;
	*e = new CUevent_st;
	(*e)->context = c.context;
	(*e)->flags = flags;
	c.context->events.insert(*e);
	driver().handles.add(*e);
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent e) {
	Call c;
	if (!c.context) return c.error;
	if (!alive(e)) return CUDA_ERROR_INVALID_HANDLE;
	e->context->events.erase(e);
	driver().handles.erase(e);
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent e, CUstream s) {
	Call c;
	if (c.error) return c.error;
	if (!alive(e)) return CUDA_ERROR_INVALID_HANDLE;
	Operation op;
	op.record = e;
	return submit(c, s, std::move(op));
}

CUresult cuEventSynchronize(CUevent e) {
	Call c;
	if (c.error) return c.error;
	if (!alive(e)) return CUDA_ERROR_INVALID_HANDLE;
	if (e->recorded) await(c.guard, e->at.stream, e->at.count);
	return CUresult(e->context->error);
}

CUresult cuEventQuery(CUevent e) {
	Call c;
	if (c.error) return c.error;
	if (!alive(e)) return CUDA_ERROR_INVALID_HANDLE;
	if (!e->recorded || e->at.stream->done >= e->at.count) return CUDA_SUCCESS;
	await(c.guard, e->at.stream, e->at.count);
	return e->context->error ? CUresult(e->context->error) : CUDA_ERROR_NOT_READY;
}

CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) {
	Call c;
	if (c.error) return c.error;
	if (!ms) return CUDA_ERROR_INVALID_VALUE;
	if (!alive(a) || !alive(b) || ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING) || !a->recorded || !b->recorded) return CUDA_ERROR_INVALID_HANDLE;
	if (a->at.stream->done < a->at.count || b->at.stream->done < b->at.count) return CUDA_ERROR_NOT_READY;
	*ms = float(b->time - a->time);
	return CUDA_SUCCESS;
}

} // extern "C"
