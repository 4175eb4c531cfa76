/* Each time a session writes its wait_event_info, as a watchpoint of the CPU sees it: how long the value before stood there. */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BUCKETS 40

struct stood {
  __u64 since;
  __u32 value;
};
struct key {
  __u32 tid;
  __u32 value;
};
struct sum {
  __u64 ns;
  __u64 bucket[BUCKETS]; /* waits of at least 2^n ns */
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1024);
  __type(key, __u32);
  __type(value, struct stood);
} now SEC(".maps");

/* One thread writes each entry, so that nothing is counted twice or lost. */
struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 16384);
  __type(key, struct key);
  __type(value, struct sum);
} sums SEC(".maps");

__u64 lost;

SEC("perf_event")
int written(struct bpf_perf_event_data *context) {
  __u64 at = bpf_ktime_get_ns();
  __u32 tid = bpf_get_current_pid_tgid(), value = 0;
  if (bpf_probe_read_user(&value, sizeof value, (void *)context->addr)) {
    __sync_fetch_and_add(&lost, 1);
    return 0;
  }
  struct stood *before = bpf_map_lookup_elem(&now, &tid);
  if (!before) {
    struct stood first = {at, value};
    bpf_map_update_elem(&now, &tid, &first, BPF_ANY);
    return 0;
  }
  if (before->value) {
    struct key key = {tid, before->value};
    struct sum *sum = bpf_map_lookup_elem(&sums, &key);
    if (!sum) {
      static const struct sum none;
      bpf_map_update_elem(&sums, &key, &none, BPF_ANY);
      sum = bpf_map_lookup_elem(&sums, &key);
    }
    if (sum) {
      __u64 ns = at - before->since, n = 0;
      for (int step = 32; step; step >>= 1)
        if (ns >> (n + step)) n += step;
      sum->ns += ns;
      if (n < BUCKETS) sum->bucket[n]++;
    } else
      __sync_fetch_and_add(&lost, 1);
  }
  before->since = at;
  before->value = value;
  return 0;
}
