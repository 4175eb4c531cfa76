/* Segments of TCP that are sent again, of the whole host, with the open file of their socket: mostly a timer or an interrupt sends them, in
 * the time of whoever runs there. */
#ifndef LEADLINE_RETRANSMITS_H
#define LEADLINE_RETRANSMITS_H

#include "files.h"
#include "state.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sk_buff {
  unsigned int len;
};
#pragma clang attribute pop

/* The number of a socket's open file; 0: no traced thread has used it, or nobody has it open any more. */
INLINE u32 file_of_socket(struct sock *sk) {
  struct socket *socket = NULL;
  struct file *file = NULL;
  READ(socket, sk->sk_socket);
  READ(file, socket->file);
  u64 key = (u64)file;
  struct known_file *known = file ? bpf_map_lookup_elem(&files, &key) : NULL;
  if (!known)
    return 0;
  struct inode *inode = NULL;
  READ(inode, file->f_inode);
  return known->inode == (u64)inode ? known->id : 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int retransmitted(u64 *ctx) {
  struct sock *sk = (void *)ctx[0];
  struct sk_buff *segment = (void *)ctx[1];
  u64 now = now_in_window();
  if (!now)
    return 0;
  struct retransmit *r = bpf_ringbuf_reserve(&ring, sizeof(struct retransmit), 0);
  if (!r) {
    count_lost(LOST_RETRANSMITS, 1);
    return 0;
  }
  __builtin_memset(r, 0, sizeof(*r));
  r->head.kind = RETRANSMIT;
  r->head.cpu = bpf_get_smp_processor_id();
  r->head.ts = now;
  r->file_id = file_of_socket(sk);
  READ(r->bytes, segment->len);
  u8 state = 0;
  READ(state, sk->__sk_common.skc_state);
  r->state = state;
  put_addresses_of(&r->at, sk);
  SUBMIT(r);
  return 0;
}

#endif
