// The tokens of a PTX text.
#pragma once
#include "ptx.hpp"

namespace ptx {

struct Token {
	enum Kind : u8 { Word, Number, Text, Mark, End };
	Kind kind;
	std::string text; // of Mark one character
	u64 value = 0;    // of Number
	bool real = false;
	int line;
};

std::vector<Token> lex(const std::string &text);

} // namespace ptx
