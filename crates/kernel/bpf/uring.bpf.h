/* Operations of io_uring: from the moment a thread hands one over until it is completed, by whomever. A ring that a thread of the kernel
 * empties (SQPOLL) is not seen: that thread is none of the process. Of an operation that completes many times, the first one counts. */
#ifndef LEADLINE_URING_H
#define LEADLINE_URING_H

#include "files.h"
#include "state.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct io_cqe {
  s32 res;
  s32 fd;
};
struct kiocb {
  s64 ki_pos;
};
/* Of a read or write, at the begin of its io_kiocb. */
struct io_rw {
  struct kiocb kiocb;
  u32 len;
};
struct io_kiocb {
  u8 opcode;
  u8 flags; /* the lowest byte */
  struct io_cqe cqe;
};
#pragma clang attribute pop

#define FIXED_FILE 1 /* its file is known by a number of the ring */

/* By opcode, a bit each: those with a file. */
volatile const u64 operations_with_file = 0;
/* Those that read or write at a place of it. */
volatile const u64 operations_with_place = 0;

struct uring_begun {
  u64 ts;
  u32 tid;
  u32 thread;
  u32 file_id;
  u32 opcode;
  u32 by_worker;
  u32 unused;
  u64 bytes;
  s64 place;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, u64);
  __type(value, struct uring_begun);
} uring_begun SEC(".maps");

SEC("tp_btf/io_uring_submit_req")
int uring_submitted(u64 *ctx) {
  struct task_struct *task = bpf_get_current_task_btf();
  struct thread *t = thread_of(task);
  u64 now = t && !(window.left_out & NO_EVENTS) ? now_in_window() : 0;
  if (!now)
    return 0;
  u64 key = ctx[0];
  struct io_kiocb *req = (void *)key;
  u8 opcode = 0, flags = 0;
  s32 fd = -1;
  READ(opcode, req->opcode);
  READ(flags, req->flags);
  READ(fd, req->cqe.fd);
  struct uring_begun begun = {.ts = now, .tid = t->tid, .thread = t->number, .opcode = opcode};
  if (fd >= 0 && !(flags & FIXED_FILE) && opcode < 64 && operations_with_file >> opcode & 1)
    begun.file_id = file_of(task, fd, AS_KNOWN, now);
  if (opcode < 64 && operations_with_place >> opcode & 1) {
    struct io_rw *rw = (void *)key;
    u32 len = 0;
    READ(len, rw->len);
    READ(begun.place, rw->kiocb.ki_pos);
    begun.bytes = len;
  }
  bpf_map_update_elem(&uring_begun, &key, &begun, 0);
  return 0;
}

/* It would have to wait: a worker of the kernel does it. */
SEC("tp_btf/io_uring_queue_async_work")
int uring_queued(u64 *ctx) {
  u64 key = ctx[0];
  struct uring_begun *begun = bpf_map_lookup_elem(&uring_begun, &key);
  if (begun)
    begun->by_worker = 1;
  return 0;
}

SEC("tp_btf/io_uring_complete")
int uring_completed(u64 *ctx) {
  u64 key = ctx[1];
  struct uring_begun *begun = bpf_map_lookup_elem(&uring_begun, &key);
  u64 now = begun ? now_in_window() : 0;
  if (!now)
    return 0;
  struct io_kiocb *req = (void *)key;
  s32 result = 0;
  READ(result, req->cqe.res);
  struct uring_op *r = bpf_ringbuf_reserve(&ring, sizeof(struct uring_op), 0);
  if (r) {
    r->head.kind = URING_OP;
    r->head.cpu = bpf_get_smp_processor_id();
    r->head.tid = begun->tid;
    r->head.thread = begun->thread;
    r->head.ts = now;
    r->duration_ns = now - begun->ts;
    r->result = result;
    r->opcode = begun->opcode;
    r->file_id = begun->file_id;
    r->by_worker = begun->by_worker;
    r->bytes = begun->bytes;
    r->place = begun->place;
    SUBMIT(r);
  } else {
    count_lost(LOST_BLOCK_IOS, 1);
  }
  bpf_map_delete_elem(&uring_begun, &key);
  return 0;
}

#endif
