// Integer types, and what the whole simulator agrees on.
#pragma once
#include <cstddef>
#include <cstdint>

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

// The threads of a warp, which are the lanes of its registers.
constexpr int Lanes = 32;

// Where generic addresses point. Device d's memory begins at DeviceBase + d*DeviceStride:
// nothing of the host is mapped there, so a host that reads through a device pointer ends
// as it does with a real driver. Shared and local memory are windows of 4 GiB.
constexpr u64 DeviceBase = 0x2000'0000'0000;
constexpr u64 DeviceStride = u64(1) << 38;
constexpr u64 SharedWindow = 0x1100'0000'0000;
constexpr u64 LocalWindow = 0x1200'0000'0000;
constexpr u64 WindowSize = u64(1) << 32;
constexpr int MaxDevices = 16;

// What a block may have of shared memory: without and with cuFuncSetAttribute.
constexpr u32 SharedDefault = 48 << 10;
constexpr u32 SharedMost = 227 << 10;
constexpr u32 Multiprocessors = 4; // of a device; blocks are dealt over them in turn
constexpr u32 LocalMost = 512 << 10;
