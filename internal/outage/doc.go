// Package outage drills runs whose processes are killed, stopped, cut off from each
// other, slow, or out of space: its tests build bin/train and bin/verify, start them as
// a user or a launcher would, break something from outside, and look at what is left:
// exit codes, what is said, processes, files, and whether the next run goes on. It ends
// only processes that carry the mark of the test that started them.
package outage
