// The shadow of memory: for each word of 4 bytes two stamps, of who wrote it last and who
// read it last. They answer at once whether a word is allocated, initialised, and whether
// two threads touched it with nothing between them that orders them.
#pragma once
#include "base.hpp"

namespace stamp {

// From the low bits on: which bytes are initialised, which the access touched, whether it
// was atomic, whether the allocation ends within the word, the thread, how often its warp
// had synchronised, how often its block had, and the serial number of the block, which
// counts over all launches of a device. Copies and fills take one number each.
constexpr u64 Init = 15, Bytes = 15 << 4, Atomic = 1 << 8, Tail = 1 << 9;
constexpr int BytesShift = 4, ThreadShift = 10, WarpShift = 21, BarrierShift = 31, SerialShift = 41;
constexpr u64 Thread = u64(2047) << ThreadShift;
constexpr u64 WarpEpoch = u64(1023) << WarpShift;
constexpr u64 BarrierEpoch = u64(1023) << BarrierShift;
constexpr u64 Serial = ~u64(0) << SerialShift;
constexpr u64 SerialEnd = u64(1) << (64 - SerialShift);

// Threads beyond 1,023 are several: of the warp 1024 + w, of the block, of several blocks
// of a launch. Pending is an asynchronous copy that nobody has waited for.
constexpr u64 Warp0 = 1024, SeveralWarps = 1100, SeveralBlocks = 1101, Pending = 1102;

// Serials below FirstSerial are nobody's: 1 is memory as it was allocated.
constexpr u64 Allocated = u64(1) << SerialShift;
constexpr u64 FirstSerial = 2;

inline u64 serial(u64 s) { return s >> SerialShift; }
inline u64 thread(u64 s) { return (s & Thread) >> ThreadShift; }

} // namespace stamp
