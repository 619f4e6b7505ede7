// Package chaos holds only tests: real agents with load running, while the Redis
// they share is killed, cut off, hung, emptied and lied to. Ordinary test runs take
// a few of the failures; scripts/chaos takes all and prints the table of
// docs/chaos.md.
package chaos
