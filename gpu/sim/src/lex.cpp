#include "lex.hpp"
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ptx {
namespace {

bool begins(char c) { return isalpha(u8(c)) || strchr("_$%.", c); }
bool goesOn(char c) { return isalnum(u8(c)) || strchr("_$%.", c); }

// number reads 12, 12U, 0x1f, 0f3f800000 and 0d3ff0000000000000.
Token number(const std::string &s, size_t &i, int line) {
	Token t{Token::Number, "", 0, false, line};
	size_t from = i;
	while (i < s.size() && isalnum(u8(s[i]))) i++;
	t.text = s.substr(from, i - from);
	const char *p = t.text.c_str();
	char *end;
	errno = 0;
	if (p[0] == '0' && strchr("fFdD", p[1]) && p[1]) {
		t.real = true;
		if (strlen(p) != (tolower(p[1]) == 'f' ? 10 : 18)) throw Error{line, "number " + t.text};
		t.value = strtoull(p + 2, &end, 16);
	} else {
		t.value = strtoull(p, &end, 0);
		if (*end == 'U') end++;
	}
	if (*end || errno == ERANGE) throw Error{line, "number " + t.text};
	return t;
}

} // namespace

std::vector<Token> lex(const std::string &s) {
	std::vector<Token> out;
	int line = 1;
	size_t i = 0;
	while (i < s.size()) {
		char c = s[i];
		if (c == '\n') line++;
		if (isspace(u8(c)) || c == 0) {
			i++;
		} else if (!s.compare(i, 2, "//")) {
			while (i < s.size() && s[i] != '\n') i++;
		} else if (!s.compare(i, 2, "/*")) {
			size_t end = s.find("*/", i + 2);
			if (end == std::string::npos) throw Error{line, "comment that does not end"};
			for (; i < end + 2; i++) line += s[i] == '\n';
		} else if (c == '"') {
			size_t end = s.find('"', i + 1);
			if (end == std::string::npos) throw Error{line, "string that does not end"};
			out.push_back({Token::Text, s.substr(i + 1, end - i - 1), 0, false, line});
			i = end + 1;
		} else if (isdigit(u8(c))) {
			out.push_back(number(s, i, line));
		} else if (begins(c)) {
			size_t from = i++;
			// Two colons are part of a word: .L2::128B. One ends a label.
			while (i < s.size() && (goesOn(s[i]) || !s.compare(i, 2, "::"))) i += s[i] == ':' ? 2 : 1;
			out.push_back({Token::Word, s.substr(from, i - from), 0, false, line});
		} else {
			out.push_back({Token::Mark, std::string(1, c), 0, false, line});
			i++;
		}
	}
	out.push_back({Token::End, "the end", 0, false, line});
	return out;
}

} // namespace ptx
