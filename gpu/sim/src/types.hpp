// Types and spaces of PTX, as instructions name them.
#pragma once
#include "base.hpp"

namespace ptx {

enum class Type : u8 { None, Pred, B8, B16, B32, B64, U8, U16, U32, U64, S8, S16, S32, S64, F32, F64 };

constexpr u8 widths[] = {0, 4, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
inline int bytes(Type t) { return widths[int(t)]; }
inline bool isSigned(Type t) { return t >= Type::S8 && t <= Type::S64; }
inline bool isFloat(Type t) { return t >= Type::F32; }

enum class Space : u8 { Generic, Global, Shared, Local, Param, Const };

} // namespace ptx
