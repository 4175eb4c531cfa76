/* What a file descriptor stands for: a file with its path, a socket with its addresses, a pipe.
 *
 * An open file is known by its struct file and inode. The first call that uses it hands over what it is, in a record of its own; each
 * later call has only its number. A struct file is used again for another file: so what a call opens gets a new number, and so does
 * one whose inode has changed. */
#ifndef LEADLINE_FILES_H
#define LEADLINE_FILES_H

#include "namespace.h"
#include "state.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct super_block {
  u32 s_dev;
  unsigned long s_magic;
};
struct inode {
  u16 i_mode;
  struct super_block *i_sb;
  unsigned long i_ino;
  unsigned int i_nlink;
};
struct qstr {
  const unsigned char *name;
};
struct dentry {
  struct dentry *d_parent;
  struct qstr d_name;
};
struct vfsmount {
  struct dentry *mnt_root;
};
struct mount {
  struct mount *mnt_parent;
  struct dentry *mnt_mountpoint;
  struct vfsmount mnt;
};
struct path {
  struct vfsmount *mnt;
  struct dentry *dentry;
};
struct file {
  void *private_data;
  struct inode *f_inode;
  unsigned int f_flags;
  struct path f_path;
};
struct fdtable {
  unsigned int max_fds;
  struct file **fd;
};
struct files_struct {
  struct fdtable *fdt;
};
struct in6_addr {
  u8 bytes[16];
};
struct socket;
struct sock_common {
  u32 skc_daddr;
  u32 skc_rcv_saddr;
  u16 skc_dport;
  u16 skc_num;
  u16 skc_family;
  u8 skc_state;
  struct in6_addr skc_v6_daddr;
  struct in6_addr skc_v6_rcv_saddr;
};
struct sock {
  struct sock_common __sk_common;
  u16 sk_type;
  u16 sk_protocol;
  struct socket *sk_socket;
};
struct socket {
  struct sock *sk;
  struct file *file;
};
#pragma clang attribute pop

/* By number of the call, a bit each: those whose first argument is a descriptor; those that give a new one; those after which each
 * descriptor stands for what it did before. */
volatile const u64 calls_with_file[2 * CALLS / 64] = {};
volatile const u64 calls_that_open[2 * CALLS / 64] = {};
volatile const u64 calls_that_keep[2 * CALLS / 64] = {};

#define NR_CONNECT 42
#define NR_BIND 49
#define IN_PROGRESS -115
#define S_IFMT 0xf000
#define S_IFSOCK 0xc000
#define AF_INET 2
#define AF_INET6 10
#define DEPTH 40 /* folders and mounts of a path */

struct known_file {
  u64 inode;
  u64 number;
  u32 id;
};
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 65536);
  __type(key, u64);
  __type(value, struct known_file);
} files SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct open_file);
} file_scratch SEC(".maps");

u32 last_file_id;

/* Calls that may have changed what a descriptor stands for, of all threads. */
u32 fd_changes;

/* Where a call stands in tables of all calls; 2 * CALLS: nowhere. */
INLINE u32 place_of(u32 nr) {
  if (nr < CALLS)
    return nr;
  return nr - CALLS_OF_32_BIT < CALLS ? nr - CALLS_OF_32_BIT + CALLS : 2 * CALLS;
}

INLINE u32 is_among(volatile const u64 *calls, u32 nr) {
  u32 place = place_of(nr);
  return place < 2 * CALLS && calls[place >> 6] >> (place & 63) & 1;
}

/* Where a walk up a path is. */
struct walk {
  u64 dentry;
  u64 mount;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct walk);
} walks SEC(".maps");

/* One step up a path, over its name or over a mount. Whether there are more. Not static, and what it works on is in maps: so the verifier
 * looks at it once, and not for each step and caller, which took half a second. */
__attribute__((noinline)) int step_up(void) {
  u32 zero = 0;
  struct open_file *r = bpf_map_lookup_elem(&file_scratch, &zero);
  struct walk *walk = bpf_map_lookup_elem(&walks, &zero);
  if (!r || !walk)
    return 0;
  struct dentry *dentry = (void *)walk->dentry, *root = NULL, *parent = NULL;
  struct mount *mount = (void *)walk->mount;
  READ(root, mount->mnt.mnt_root);
  READ(parent, dentry->d_parent);
  u32 nowhere = dentry == parent && dentry != root; /* in no folder: what has a name without being a file */
  if (!nowhere && (dentry == root || dentry == parent)) {
    struct mount *above = NULL;
    READ(above, mount->mnt_parent);
    if (!above || above == mount) {
      r->whole = 1;
      return 0;
    }
    READ(dentry, mount->mnt_mountpoint);
    walk->dentry = (u64)dentry;
    walk->mount = (u64)above;
    return 1;
  }
  const unsigned char *name = NULL;
  READ(name, dentry->d_name.name);
  u32 used = r->name_bytes;
  if (used > NAMES - NAME_MAX)
    return 0;
  long bytes = bpf_probe_read_kernel_str(r->names + used, NAME_MAX, name);
  if (bytes <= 0)
    return 0;
  r->name_bytes = used + bytes;
  walk->dentry = (u64)parent;
  return !nowhere;
}

/* The names of a path, the last one first, each with a zero at its end. Mounts are followed up to the root of all. */
INLINE void put_path(struct open_file *r, struct file *file) {
  u32 zero = 0;
  struct walk *walk = bpf_map_lookup_elem(&walks, &zero);
  if (!walk)
    return;
  struct dentry *dentry = NULL;
  struct vfsmount *vfsmount = NULL;
  READ(dentry, file->f_path.dentry);
  READ(vfsmount, file->f_path.mnt);
  walk->dentry = (u64)dentry;
  walk->mount = (u64)((void *)vfsmount - __builtin_preserve_field_info(((struct mount *)0)->mnt, 0));
  r->whole = r->name_bytes = 0;
  for (u32 i = 0; i < DEPTH && step_up(); i++)
    ;
}

INLINE void put_addresses_of(struct addresses *at, struct sock *sk) {
  READ(at->family, sk->__sk_common.skc_family);
  READ(at->local_port, sk->__sk_common.skc_num);
  READ(at->remote_port, sk->__sk_common.skc_dport);
  if (at->family == AF_INET) {
    bpf_probe_read_kernel(at->local, 4, &sk->__sk_common.skc_rcv_saddr);
    bpf_probe_read_kernel(at->remote, 4, &sk->__sk_common.skc_daddr);
  } else if (at->family == AF_INET6) {
    READ(at->local, sk->__sk_common.skc_v6_rcv_saddr);
    READ(at->remote, sk->__sk_common.skc_v6_daddr);
  }
}

INLINE void put_addresses(struct open_file *r, struct file *file) {
  struct socket *socket = NULL;
  struct sock *sk = NULL;
  READ(socket, file->private_data);
  READ(sk, socket->sk);
  if (!sk)
    return;
  READ(r->type, sk->sk_type);
  READ(r->protocol, sk->sk_protocol);
  put_addresses_of(&r->at, sk);
}

/* Hands over what an open file is. Whether there was room. */
static __attribute__((noinline)) u32 put_file(struct task_struct *task, struct file *file, struct inode *inode, u32 id, u64 now) {
  u32 zero = 0;
  struct open_file *r = bpf_map_lookup_elem(&file_scratch, &zero);
  if (!r)
    return 0;
  __builtin_memset(r, 0, OPEN_FILE_HEAD);
  r->head.kind = OPEN_FILE;
  r->head.cpu = bpf_get_smp_processor_id();
  r->head.tid = number_of(task);
  r->head.ts = now;
  r->file_id = id;
  r->tgid = number_of(task->group_leader);
  struct super_block *super = NULL;
  READ(r->inode, inode->i_ino);
  READ(r->nlink, inode->i_nlink);
  u16 mode = 0;
  READ(mode, inode->i_mode);
  r->mode = mode;
  READ(super, inode->i_sb);
  READ(r->device, super->s_dev);
  READ(r->magic, super->s_magic);
  READ(r->flags, file->f_flags);
  if ((mode & S_IFMT) == S_IFSOCK)
    put_addresses(r, file);
  else
    put_path(r, file);
  u32 names = r->name_bytes;
  if (names > NAMES)
    return 0;
  if (!bpf_ringbuf_output(&ring, r, OPEN_FILE_HEAD + names, BPF_RB_NO_WAKEUP))
    return 1;
  struct thread *t = thread_of(task);
  if (t)
    t->totals.lost++;
  count_lost(LOST_EVENTS, 1);
  return 0;
}

enum how { AS_KNOWN, OPENED, ADDRESSED };

/* The number of what a descriptor of the task stands for; 0: of nothing. OPENED: it is a new file; ADDRESSED: it has new addresses. */
static __attribute__((noinline)) u32 file_of(struct task_struct *task, u64 fd, u32 how, u64 now) {
  struct fdtable *table = task->files->fdt;
  u32 n = fd;
  if (n >= table->max_fds)
    return 0;
  struct file **slot = table->fd + n, *file = NULL;
  if (bpf_probe_read_kernel(&file, sizeof(file), slot) || !file)
    return 0;
  struct inode *inode = NULL;
  unsigned long number = 0;
  READ(inode, file->f_inode);
  READ(number, inode->i_ino);
  u64 key = (u64)file;
  struct known_file *known = bpf_map_lookup_elem(&files, &key);
  u32 same = known && known->inode == (u64)inode && known->number == number;
  if (same && how == AS_KNOWN)
    return known->id;
  u32 id = same && how == ADDRESSED ? known->id : __sync_fetch_and_add(&last_file_id, 1) + 1;
  struct known_file now_known = {.inode = (u64)inode, .number = number, .id = id};
  if (put_file(task, file, inode, id, now))
    bpf_map_update_elem(&files, &key, &now_known, 0);
  return id;
}

/* As file_of, of a file that is open. To look at the open file takes longer than all else about a call, so a thread keeps what it found
 * until some call of any thread may have changed a descriptor. */
INLINE u32 file_as_known(struct task_struct *task, struct known_fds *known, u64 fd, u64 now) {
  u32 changes = *(volatile u32 *)&fd_changes, place = fd & (KNOWN_FDS - 1);
  if (known->changes == changes && known->fd[place] == (u32)fd && known->id[place])
    return known->id[place];
  u32 id = file_of(task, fd, AS_KNOWN, now);
  if (known->changes != changes)
    __builtin_memset(known, 0, sizeof(*known));
  known->changes = changes;
  known->fd[place] = fd;
  known->id[place] = id;
  return id;
}

#endif
