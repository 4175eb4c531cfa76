/* What io_submit hands over: reads and writes that are no calls of their own. Looked at when the call begins, while the program has just
 * written them; of a call with more than MOST_AIO, the first ones. */
#ifndef LEADLINE_AIO_H
#define LEADLINE_AIO_H

#include "files.h"
#include "state.h"

#define NR_IO_SUBMIT 209
#define MOST_AIO 64

/* As the kernel takes it (include/uapi/linux/aio_abi.h). */
struct iocb {
  u64 data;
  u32 key;
  u32 rw_flags;
  u16 opcode;
  u16 priority;
  u32 fd;
  u64 buffer;
  u64 bytes;
  s64 place;
  u64 reserved;
  u32 flags;
  u32 event_fd;
};

static __attribute__((noinline)) u32 put_aio(struct task_struct *task, struct thread *t, u64 list, u64 now) {
  u64 at = 0;
  struct iocb iocb = {};
  if (!t || bpf_probe_read_user(&at, sizeof(at), (void *)list) || bpf_probe_read_user(&iocb, sizeof(iocb), (void *)at))
    return 0;
  u32 file_id = file_as_known(task, &t->fds, iocb.fd, now);
  struct aio *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
  if (!r) {
    count_lost(LOST_BLOCK_IOS, 1);
    return 0;
  }
  put_head(&r->head, AIO, t, now);
  r->bytes = iocb.bytes;
  r->place = iocb.place;
  r->opcode = iocb.opcode;
  r->file_id = file_id;
  SUBMIT(r);
  return 1;
}

INLINE void put_aios(struct task_struct *task, struct thread *t, u64 now) {
  for (u32 i = 0; i < MOST_AIO && i < t->args[1]; i++)
    put_aio(task, t, t->args[2] + i * sizeof(u64), now);
}

#endif
