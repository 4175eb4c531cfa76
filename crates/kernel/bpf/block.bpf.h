/* Block devices: all requests of the host, since they wait for each other. A request is asked for as a bio (block_bio_queue), by the
 * thread that needs it or by a kernel worker that writes back; the device gets it (block_rq_issue), and does it. */
#ifndef LEADLINE_BLOCK_H
#define LEADLINE_BLOCK_H

#include "namespace.h"
#include "state.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct gendisk {
  int major;
  int first_minor;
};
struct request_queue {
  struct gendisk *disk;
};
struct bio {};
struct request {
  struct request_queue *q;
  struct bio *bio;
  unsigned int cmd_flags;
  unsigned int __data_len;
  u64 __sector;
  u64 start_time_ns;
};
#pragma clang attribute pop

/* Who asked for a bio, and when; a bio that was merged into the request of another is forgotten in time. */
struct asked {
  u64 ts;
  u32 tid;
  u32 thread; /* 0: not traced */
  char comm[16];
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, u64);
  __type(value, struct asked);
} asked SEC(".maps");

/* Requests that a device has, or had last: one that the kernel flushes before or after ends twice, with its data and with the flush. */
struct issued {
  struct asked by;
  u64 ts;
  u64 sector;
  u64 made; /* when the request was, by which it is known from a later one at the same place */
  u32 bytes;
  u32 done;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, u64);
  __type(value, struct issued);
} issued SEC(".maps");

SEC("tp_btf/block_bio_queue")
int bio_queued(u64 *ctx) {
  u64 now = now_in_window();
  if (!now)
    return 0;
  u64 key = ctx[0];
  struct task_struct *task = bpf_get_current_task_btf();
  struct thread *t = thread_of(task);
  struct asked by = {.ts = now, .tid = number_of(task), .thread = t ? t->number : 0};
  bpf_probe_read_kernel(by.comm, sizeof(by.comm), task->comm);
  bpf_map_update_elem(&asked, &key, &by, 0);
  return 0;
}

/* Who asked for a request: of its first bio; when that is not known, when the request was made. */
INLINE void who_asked(struct request *rq, struct asked *to, u64 now) {
  u64 bio = (u64)rq->bio;
  struct asked *by = bio ? bpf_map_lookup_elem(&asked, &bio) : NULL;
  if (by) {
    *to = *by;
    bpf_map_delete_elem(&asked, &bio);
    return;
  }
  u64 since = rq->start_time_ns;
  __builtin_memset(to, 0, sizeof(*to));
  to->ts = since && since < now ? since : now;
}

SEC("tp_btf/block_rq_issue")
int request_issued(u64 *ctx) {
  struct request *rq = (void *)ctx[0];
  u64 now = now_in_window();
  if (!now)
    return 0;
  u64 key = (u64)rq;
  struct issued i = {.ts = now, .sector = rq->__sector, .bytes = rq->__data_len, .made = rq->start_time_ns};
  who_asked(rq, &i.by, now);
  bpf_map_update_elem(&issued, &key, &i, 0);
  return 0;
}

INLINE void put_block_io(struct request *rq, struct issued *i, u64 now, u32 error) {
  struct block_io *r = bpf_ringbuf_reserve(&ring, sizeof(struct block_io), 0);
  if (!r) {
    count_lost(LOST_BLOCK_IOS, 1);
    return;
  }
  r->head.kind = BLOCK_IO;
  r->head.cpu = bpf_get_smp_processor_id();
  r->head.tid = i->by.tid;
  r->head.thread = i->by.thread;
  r->head.ts = now;
  r->sector = i->sector;
  r->queue_ns = i->ts - i->by.ts;
  r->service_ns = now - i->ts;
  r->bytes = i->bytes;
  r->error = error;
  struct gendisk *disk = rq->q->disk;
  r->device = (u32)disk->major << 20 | (u32)disk->first_minor;
  r->flags = rq->cmd_flags;
  __builtin_memcpy(r->comm, i->by.comm, sizeof(r->comm));
  SUBMIT(r);
}

SEC("tp_btf/block_rq_complete")
int request_done(u64 *ctx) {
  struct request *rq = (void *)ctx[0];
  u32 error = (u8)ctx[1];
  u64 now = now_in_window();
  if (!now || rq->__data_len > (u32)ctx[2])
    return 0; /* a part of it; the rest follows */
  u64 key = (u64)rq;
  struct issued *i = bpf_map_lookup_elem(&issued, &key);
  if (i && !i->done) {
    put_block_io(rq, i, now, error);
    i->done = 1;
    return 0;
  }
  if (i && i->made == rq->start_time_ns)
    return 0;
  /* Of an fsync without data the device only gets a flush that the kernel makes itself. Others are from before the trace. */
  if (rq->__data_len || rq->start_time_ns < window.since)
    return 0;
  struct issued none = {.sector = rq->__sector};
  who_asked(rq, &none.by, now);
  none.ts = none.by.ts;
  put_block_io(rq, &none, now, error);
  return 0;
}

#endif
