package num

// weyl is the increment of splitmix64 (Steele, Lea, Flood: Fast splittable
// pseudorandom number generators, OOPSLA 2014): 2^64 over the golden ratio, odd.
const weyl = 0x9e3779b97f4a7c15

// uniformDomain separates the stream of Uniform from that of Normal.
const uniformDomain = 0x756e69666f726d00

// Mix64 is the finaliser of splitmix64, a bijection of 64-bit words (Stafford's
// variant 13 of the one of murmur3).
func Mix64(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// stream is the start of the splitmix64 sequence of a tensor.
func stream(seed, id uint64) uint64 { return Mix64(Mix64(seed+weyl) ^ id) }

// word is the n-th output of the splitmix64 sequence that starts at s.
func word(s, n uint64) uint64 { return Mix64(s + (n+1)*weyl) }

// normalScale is 1/sigma of the sum of eight independent uniform 16-bit
// integers, whose variance is 8*(2^32-1)/12 = 2863311530.
const normalScale = 0x1.3988e1412ed76p-16

// normalMean is the mean of that sum, 8*65535/2.
const normalMean = 262140

// Normal is element index of the tensor id's stream of approximately standard
// normal numbers: a pure function of its arguments, so any shard of a tensor
// can be made anywhere. It is the sum of the eight 16-bit parts of two
// splitmix64 words, less its mean, over its standard deviation.
//
// Mean 0 and variance 1 are exact over all words; kurtosis is 2.85 (a normal
// distribution has 3) and |x| < 4.9, which keeps initial weights free of
// outliers. The centred sum is an integer below 2^19, exact in float64, so the
// value is rounded once, in the product with the constant.
func Normal(seed, id, index uint64) float64 {
	s := stream(seed, id)
	sum := parts(word(s, 2*index)) + parts(word(s, 2*index+1))
	return float64(float64(int64(sum)-normalMean) * normalScale)
}

// parts is the sum of the four 16-bit parts of w.
func parts(w uint64) uint64 {
	return w&0xffff + w>>16&0xffff + w>>32&0xffff + w>>48
}

// Uniform is element index of the tensor id's stream of uniform numbers in
// [0, 1): multiples of 2^-53, exact. Its words are not those of Normal.
func Uniform(seed, id, index uint64) float64 {
	return float64(float64(word(stream(seed^uniformDomain, id), index)>>11) * 0x1p-53)
}
