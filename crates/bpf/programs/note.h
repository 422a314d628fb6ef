/* Notes of when segments arrived, for the ports of engines whose connections are observed. Each
 * engine has an array of its own, which its port maps: so a program sees the notes of its own engine
 * only. A note is one word, which is written at once:
 *
 *   place in the array   13 bits of a hash over the first 16 bytes of the TCP header
 *   note                 24 other bits of it | the low 40 bits of the time in nanoseconds
 *
 * Those bytes are the ports, both numbers, the flags and the window. A segment that has not been
 * noted, or whose note had to make room for another's, is found only if all 37 bits agree. The layout
 * must match crates/port/src/notes/mod.rs.
 */
#pragma once

#define NOTES_SHIFT 13
#define NOTES_EACH (1 << NOTES_SHIFT)
#define NOTE_TIME ((1ULL << 40) - 1)
/* A segment that comes again within this time, in nanoseconds, keeps its first note: the engine may
 * not have taken the first one yet, or the device may have lost it. */
#define NOTE_KEPT 10000000000ULL

struct notes {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NOTES_EACH);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, u64);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ENGINES_MAX);
	__type(key, u32);
	__array(values, struct notes);
} NOTES SEC(".maps");

/* Notes that the segment whose TCP header is at offset `tcp` of the frame at `f` is here. */
INLINE void note_arrival(u32 engine, const u8 *f, const u8 *end, u32 tcp)
{
	void *notes = bpf_map_lookup_elem(&NOTES, &engine);

	if (!notes)
		return;
	/* The verifier does not know what the offset can be at most. */
	asm volatile("" : "+r"(tcp));
	const u8 *header = f + (tcp & 0x7f);
	if (header + 16 > end)
		return;
	u64 words[2];
	__builtin_memcpy(words, header, sizeof words);
	u64 hash = words[0] * 0x9e3779b97f4a7c15ULL;
	hash = ((hash ^ hash >> 32) + words[1]) * 0xd6e8feb86659fd93ULL;
	hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
	u32 place = hash >> (64 - NOTES_SHIFT);
	u64 *note = bpf_map_lookup_elem(notes, &place);
	if (!note)
		return;
	u64 check = (hash >> (64 - NOTES_SHIFT - 24)) << 40;
	u64 now = bpf_ktime_get_ns() & NOTE_TIME;
	u64 old = *note;
	if ((old & ~NOTE_TIME) == check && old & NOTE_TIME && ((now - old) & NOTE_TIME) < NOTE_KEPT)
		return;
	*note = check | now;
}
