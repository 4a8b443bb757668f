// Modules, functions, launches.
#include "driver.hpp"
#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

namespace {

// newest is the compute capability whose texts are taken.
constexpr int newest = 80;

void checkTarget(const ptx::Module &m) {
	int n = m.target.compare(0, 3, "sm_") ? 0 : atoi(m.target.c_str() + 3);
	if (n < 50 || n > newest || isalpha(u8(m.target.back()))) throw ptx::Error{1, "target " + m.target + ", this device is sm_80"};
}

void release(CUmod_st &m) {
	Device &d = device(m.context->device);
	for (u64 a : m.memory) d.release(a);
}

// NoRoom is thrown where variables do not fit into the device's memory.
struct NoRoom {};

// place gives a variable memory. One that has no initial value is zero.
void place(CUmod_st &m, const ptx::Variable &v, std::map<const ptx::Variable *, u64> &address) {
	if (v.space != ptx::Space::Global && v.space != ptx::Space::Const) return;
	Device &d = device(m.context->device);
	u64 a = d.allocate(std::max(v.size, u64(1)), m.context, true);
	if (!a) throw NoRoom{};
	m.memory.push_back(a);
	address[&v] = a;
	m.globals[v.name] = {a, v.size};
	memset(d.arena.host + d.offset(a), 0, v.size);
	if (!v.init.empty()) memcpy(d.arena.host + d.offset(a), v.init.data(), v.init.size());
	if (!settings().checks) return;
	for (u64 k = 0; k < v.size; k += 4) d.arena.write[(d.offset(a) + k) / 4] |= v.size - k < 4 ? (1u << (v.size - k)) - 1 : 15;
}

// fill makes a module of a text; it throws a ptx::Error.
void fill(CUmod_st &m, const std::string &text) {
	m.text = ptx::parse(text);
	checkTarget(*m.text);
	std::map<const ptx::Variable *, u64> address;
	for (auto &v : m.text->variables) place(m, *v, address);
	for (auto &f : m.text->functions)
		for (auto &v : f->variables) place(m, *v, address);
	for (auto &f : m.text->functions) {
		if (!f->entry) continue;
		auto fn = std::make_unique<CUfunc_st>();
		fn->module = &m;
		fn->code = decode(*m.text, *f, address);
		for (auto &i : fn->code->ins)
			if (!isa().resolve(i, settings().checks)) throw ptx::Error{int(i.line), "unsupported instruction"};
		m.functions[f->name] = std::move(fn);
	}
}

// log writes into the buffer that the caller gave for errors.
void log(const std::string &s, unsigned n, CUjit_option *options, void **values) {
	size_t room = 0;
	char *to = nullptr;
	for (unsigned k = 0; k < n; k++) {
		if (options[k] == CU_JIT_ERROR_LOG_BUFFER) to = static_cast<char *>(values[k]);
		if (options[k] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) room = size_t(values[k]);
	}
	if (!to || !room) return;
	size_t len = std::min(s.size(), room - 1);
	memcpy(to, s.data(), len);
	to[len] = 0;
}

bool known(CUfunction f) { return driver().handles.has(f); }

// pack makes the bytes of the parameters as the kernel reads them.
bool pack(const Code &code, void **params, void **extra, std::vector<u8> &out) {
	out.assign(code.paramBytes + 16, 0);
	if (params) {
		for (size_t k = 0; k < code.params.size(); k++) memcpy(out.data() + code.params[k].at, params[k], code.params[k].size);
		return true;
	}
	if (!extra) return code.params.empty();
	const void *buffer = nullptr;
	size_t size = 0;
	for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
		if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
		else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<size_t *>(extra[1]);
		else return false;
	}
	if (!buffer || size < code.paramBytes) return false;
	memcpy(out.data(), buffer, code.paramBytes);
	return true;
}

} // namespace

void freeModule(CUmod_st *m) {
	release(*m);
	for (auto &f : m->functions) driver().handles.erase(f.second.get());
	driver().handles.erase(m);
	m->context->modules.erase(m);
	delete m;
}

extern "C" {

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, CUjit_option *options, void **values) {
	Call c;
	if (c.error) return c.error;
	if (!out || !image || (n && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
	std::string text = static_cast<const char *>(image);
	if (text.find(".version") == std::string::npos) {
		log("no PTX text: .version is missing", n, options, values);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	auto m = std::make_unique<CUmod_st>();
	m->context = c.context;
	try {
		fill(*m, text);
		c.context->modules.insert(m.get());
		driver().handles.add(m.get());
		for (auto &f : m->functions) driver().handles.add(f.second.get());
		*out = m.release();
		return CUDA_SUCCESS;
	} catch (ptx::Error &e) {
		log("line " + std::to_string(e.line) + ": " + e.what, n, options, values);
		release(*m);
		return CUDA_ERROR_INVALID_PTX;
	} catch (NoRoom &) {
		release(*m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	} catch (std::bad_alloc &) { // of the host
		release(*m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
}

CUresult cuModuleLoadData(CUmodule *m, const void *image) { return cuModuleLoadDataEx(m, image, 0, nullptr, nullptr); }

CUresult cuModuleLoad(CUmodule *m, const char *name) {
	if (!m || !name) return CUDA_ERROR_INVALID_VALUE;
	std::ifstream in(name);
	if (!in) return CUDA_ERROR_FILE_NOT_FOUND;
	std::stringstream text;
	text << in.rdbuf();
	return cuModuleLoadData(m, text.str().c_str());
}

CUresult cuModuleUnload(CUmodule m) {
	Call c;
	if (!c.context) return c.error;
	if (!driver().handles.has(m)) return CUDA_ERROR_INVALID_HANDLE;
	awaitContext(c.guard, m->context);
	freeModule(m);
	return c.error;
}

CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
	Call c;
	if (c.error) return c.error;
	if (!f || !name) return CUDA_ERROR_INVALID_VALUE;
	if (!driver().handles.has(m)) return CUDA_ERROR_INVALID_HANDLE;
	auto it = m->functions.find(name);
	if (it == m->functions.end()) return CUDA_ERROR_NOT_FOUND;
	*f = it->second.get();
	return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *p, size_t *size, CUmodule m, const char *name) {
	Call c;
	if (c.error) return c.error;
	if (!name) return CUDA_ERROR_INVALID_VALUE;
	if (!driver().handles.has(m)) return CUDA_ERROR_INVALID_HANDLE;
	auto it = m->globals.find(name);
	if (it == m->globals.end()) return CUDA_ERROR_NOT_FOUND;
	if (p) *p = it->second.first;
	if (size) *size = it->second.second;
	return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) {
	Call c;
	if (c.error) return c.error;
	if (!v) return CUDA_ERROR_INVALID_VALUE;
	if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
	switch (int(a)) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *v = int(f->code->maxThreads); break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *v = int(f->code->sharedStatic); break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *v = int(f->code->localBytes); break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION: case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *v = newest; break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *v = int(f->dynamicMost); break;
	default: *v = 0; // registers and caches are not simulated
	}
	return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) {
	Call c;
	if (c.error) return c.error;
	if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
	if (a == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
	if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v < 0 || u32(v) + f->code->sharedStatic > SharedMost) return CUDA_ERROR_INVALID_VALUE;
	f->dynamicMost = u32(v);
	return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return Call().error; }
CUresult cuFuncSetSharedMemConfig(CUfunction, CUsharedconfig) { return Call().error; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction f, int threads, size_t dynamic) {
	Call c;
	if (c.error) return c.error;
	if (!known(f)) return CUDA_ERROR_INVALID_HANDLE;
	if (!n || threads < 1) return CUDA_ERROR_INVALID_VALUE;
	// Threads and shared memory of a multiprocessor limit it; registers are not simulated.
	size_t shared = f->code->sharedStatic + dynamic + 1024, warps = size_t(threads + Lanes - 1) / Lanes;
	*n = u32(threads) > f->code->maxThreads || dynamic > f->dynamicMost ? 0 : int(std::min({size_t(32), 64 / warps, (SharedMost + 1024) / shared}));
	return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, CUfunction f, int threads, size_t dynamic, unsigned) { return cuOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, dynamic); }

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s, void **params, void **extra) {
	Call c;
	if (c.error) return c.error;
	if (!known(f) || f->module->context != c.context) return CUDA_ERROR_INVALID_HANDLE;
	u64 threads = u64(bx) * by * bz, blocks = u64(gx) * gy * gz;
	if (!threads || !blocks || bx > 1024 || by > 1024 || bz > 64 || gx > 0x7fffffff || gy > 65535 || gz > 65535 || (params && extra)) return CUDA_ERROR_INVALID_VALUE;
	if (threads > 1024 || threads > f->code->maxThreads) return CUDA_ERROR_INVALID_VALUE;
	if (shared > f->dynamicMost || f->code->sharedStatic + shared > SharedMost) return CUDA_ERROR_INVALID_VALUE;
	if (blocks > stamp::SerialEnd / 2) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES; // more than the shadow can tell apart
	auto l = std::make_shared<Launch>();
	l->code = f->code.get();
	l->device = &device(c.context->device);
	u32 grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
	memcpy(l->grid, grid, sizeof grid);
	memcpy(l->block, block, sizeof block);
	l->dynamicShared = shared;
	l->queued = ++driver().operations;
	for (auto *p : c.context->peers)
		if (driver().handles.has(p)) l->peers.push_back({&device(p->device), device(p->device).arena});
	if (!pack(*l->code, params, extra, l->params)) return CUDA_ERROR_INVALID_VALUE;
	Operation op;
	op.run = [l] {
		std::lock_guard<std::mutex> busy(l->device->busy);
		return execute(*l);
	};
	return submit(c, s, std::move(op));
}

} // extern "C"
