//! Socket filters as data: classic BPF that drops events before they are queued.
//!
//! A program sees one message from its `nlmsghdr` on. It loads numbers in network order whatever the
//! host's is: compare two-byte fields that the kernel writes in host order with [`Filter::host_u16`].

use std::os::fd::AsFd;

use libc::{BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W};

use crate::{Error, Result, sys};

/// One instruction, laid out as the kernel's `sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    /// How many instructions to skip if it holds.
    pub then: u8,
    /// How many instructions to skip if it does not hold.
    pub otherwise: u8,
    pub value: u32,
}

impl Instruction {
    /// Loads the byte at `offset`.
    #[must_use]
    pub const fn load_u8(offset: u32) -> Self {
        Self::plain(BPF_LD | BPF_B | BPF_ABS, offset)
    }

    /// Loads the two bytes at `offset`, in network order.
    #[must_use]
    pub const fn load_u16(offset: u32) -> Self {
        Self::plain(BPF_LD | BPF_H | BPF_ABS, offset)
    }

    /// Loads the four bytes at `offset`, in network order.
    #[must_use]
    pub const fn load_u32(offset: u32) -> Self {
        Self::plain(BPF_LD | BPF_W | BPF_ABS, offset)
    }

    /// Skips `then` instructions if what was loaded is `value`, else `otherwise`.
    #[must_use]
    pub const fn if_equal(value: u32, then: u8, otherwise: u8) -> Self {
        Self { then, otherwise, ..Self::plain(BPF_JMP | BPF_JEQ | BPF_K, value) }
    }

    /// Skips `then` instructions if what was loaded has any bit of `mask`, else `otherwise`.
    #[must_use]
    pub const fn if_any_bit(mask: u32, then: u8, otherwise: u8) -> Self {
        Self { then, otherwise, ..Self::plain(BPF_JMP | BPF_JSET | BPF_K, mask) }
    }

    /// Accepts the message.
    #[must_use]
    pub const fn keep() -> Self {
        Self::plain(BPF_RET | BPF_K, u32::MAX)
    }

    /// Drops the message.
    #[must_use]
    pub const fn discard() -> Self {
        Self::plain(BPF_RET | BPF_K, 0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "operations are one byte")]
    const fn plain(code: u32, value: u32) -> Self {
        Self { code: code as u16, then: 0, otherwise: 0, value }
    }
}

/// A program; the kernel checks it when it is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    program: Box<[Instruction]>,
}

impl Filter {
    /// A filter that runs `program` on every message.
    #[must_use]
    pub fn new(program: impl Into<Box<[Instruction]>>) -> Self {
        Self { program: program.into() }
    }

    /// Replaces the filter of a socket. Messages that are queued already stay.
    pub fn attach(&self, socket: impl AsFd) -> Result<()> {
        sys::attach_filter(socket.as_fd(), &self.program)
            .map_err(|source| Error::Option { option: "SO_ATTACH_FILTER", source })
    }

    /// A two-byte number in host order, as a filter loads it.
    #[must_use]
    pub const fn host_u16(value: u16) -> u32 {
        value.to_be() as u32
    }

    /// A four-byte number in host order, as a filter loads it.
    #[must_use]
    pub const fn host_u32(value: u32) -> u32 {
        value.to_be()
    }
}
