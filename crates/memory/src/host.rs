//! Host memory in a sealed memfd.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::{Memory, Placement};

/// A memfd of fixed size, mapped shared.
#[derive(Debug)]
pub struct HostMemory {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
}

/// Why memory could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step} {len} bytes of shared memory: {source}")]
pub struct CreateError {
    /// What failed.
    step: &'static str,
    /// How much was asked for.
    len: usize,
    /// What the system said.
    source: std::io::Error,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access goes through raw copies
// whose bounds are checked, and concurrent access is ordered by page leases above this crate.
unsafe impl Send for HostMemory {}
// SAFETY: as for Send; no method hands out a reference into the mapping.
unsafe impl Sync for HostMemory {}

// SAFETY: `base` is mapped for `len` bytes from `create` until `drop`, and no method makes a
// reference into it.
unsafe impl Memory for HostMemory {
    fn address(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn placement(&self) -> Placement {
        Placement::Host
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

impl HostMemory {
    /// Makes zeroed memory of `len` bytes, its size sealed. `name` shows in `/proc/PID/maps`.
    pub fn create(name: &str, len: usize) -> Result<Self, CreateError> {
        let fail = |step| {
            move |e: rustix::io::Errno| CreateError {
                step,
                len,
                source: e.into(),
            }
        };
        if len == 0 {
            return Err(fail("make")(rustix::io::Errno::INVAL));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags).map_err(fail("make"))?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(fail("size"))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(fail("seal"))?;
        Self::map(fd, len).map_err(fail("map"))
    }

    /// Maps memory that another process made: a memfd of at least `len` bytes, sealed against
    /// shrinking, since nothing else keeps its maker from cutting it off under this process.
    pub fn from_descriptor(fd: OwnedFd, len: usize) -> Result<Self, CreateError> {
        let fail = |step, source: std::io::Error| CreateError { step, len, source };
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|e| fail("share", e.into()))?;
        if !seals.contains(SealFlags::SHRINK) {
            let why = std::io::Error::other("it is not sealed against shrinking");
            return Err(fail("share", why));
        }
        let stat = rustix::fs::fstat(&fd).map_err(|e| fail("share", e.into()))?;
        let has = u64::try_from(stat.st_size).unwrap_or(0);
        if has < len as u64 || len == 0 {
            let why = std::io::Error::other(format!("it has {has} bytes"));
            return Err(fail("share", why));
        }
        Self::map(fd, len).map_err(|e| fail("map", e.into()))
    }

    /// A counter in the memory, for processes that share it.
    ///
    /// # Panics
    /// Where it is not inside the memory, or not at a multiple of eight.
    #[must_use]
    pub fn counter(&self, offset: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(offset.is_multiple_of(8), "a counter at {offset}");
        let at = self.range(offset, 8);
        // SAFETY: in the mapping for its eight bytes, aligned (the mapping is page-aligned), mapped as
        // long as self. Other accesses through this crate are copies by raw pointers.
        unsafe { std::sync::atomic::AtomicU64::from_ptr(at.cast()) }
    }

    fn map(fd: OwnedFd, len: usize) -> Result<Self, rustix::io::Errno> {
        // SAFETY: a new mapping at an address the kernel chooses, of a descriptor we own whose
        // size is sealed at `len`, so no access inside it can fault with SIGBUS.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(rustix::io::Errno::FAULT)?;
        Ok(Self { base, len, fd })
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// Where the range is not inside the memory.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.range(offset, into.len());
        // SAFETY: `range` checked that the source lies in the mapping; `into` is ours, so they do
        // not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// Where the range is not inside the memory.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let into = self.range(offset, from.len());
        // SAFETY: `range` checked that the target lies in the mapping; `from` is a Rust slice and
        // so not inside it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) }
    }

    /// Reads half-precision numbers as `f32`.
    ///
    /// # Panics
    /// Where the range is not inside the memory.
    pub fn read_f16(&self, offset: usize, into: &mut [f32]) {
        let mut raw = [f16::ZERO; CHUNK];
        self.read_halves(offset, into, &mut raw, |raw, into| {
            raw.convert_to_f32_slice(into)
        });
    }

    /// Reads bfloat16 numbers as `f32`.
    ///
    /// # Panics
    /// Where the range is not inside the memory.
    pub fn read_bf16(&self, offset: usize, into: &mut [f32]) {
        let mut raw = [bf16::ZERO; CHUNK];
        self.read_halves(offset, into, &mut raw, |raw, into| {
            raw.convert_to_f32_slice(into)
        });
    }

    /// Writes `f32` numbers in half precision, rounded to nearest even.
    ///
    /// # Panics
    /// Where the range is not inside the memory.
    pub fn write_f16(&self, offset: usize, from: &[f32]) {
        let mut raw = [f16::ZERO; CHUNK];
        self.write_halves(offset, from, &mut raw, |raw, from| {
            raw.convert_from_f32_slice(from)
        });
    }

    /// Writes `f32` numbers as bfloat16, rounded to nearest even.
    ///
    /// # Panics
    /// Where the range is not inside the memory.
    pub fn write_bf16(&self, offset: usize, from: &[f32]) {
        let mut raw = [bf16::ZERO; CHUNK];
        self.write_halves(offset, from, &mut raw, |raw, from| {
            raw.convert_from_f32_slice(from)
        });
    }

    fn read_halves<H: Copy>(
        &self,
        offset: usize,
        into: &mut [f32],
        raw: &mut [H; CHUNK],
        convert: impl Fn(&[H], &mut [f32]),
    ) {
        let base = self.range(offset, into.len() * size_of::<H>());
        for (i, part) in into.chunks_mut(CHUNK).enumerate() {
            let raw = &mut raw[..part.len()];
            // SAFETY: the part lies in the range checked above; `raw` holds as many two-byte
            // numbers, any bits of which are a valid number; byte copies need no alignment.
            unsafe {
                let from = base.add(i * CHUNK * size_of::<H>());
                let bytes = std::mem::size_of_val(raw);
                std::ptr::copy_nonoverlapping(from, raw.as_mut_ptr().cast::<u8>(), bytes);
            }
            convert(raw, part);
        }
    }

    fn write_halves<H: Copy>(
        &self,
        offset: usize,
        from: &[f32],
        raw: &mut [H; CHUNK],
        convert: impl Fn(&mut [H], &[f32]),
    ) {
        let base = self.range(offset, from.len() * size_of::<H>());
        for (i, part) in from.chunks(CHUNK).enumerate() {
            let raw = &mut raw[..part.len()];
            convert(raw, part);
            // SAFETY: as in `read_halves`, the other way.
            unsafe {
                let into = base.add(i * CHUNK * size_of::<H>());
                let bytes = std::mem::size_of_val(raw);
                std::ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), into, bytes);
            }
        }
    }

    fn range(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {offset} of {}", self.len);
        // SAFETY: `offset` is at most `len` of one mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, unmapped once; nobody holds a reference
        // into it. Whoever registered it with a NIC holds it by `Arc`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Numbers converted at a time: small enough for the stack and the first-level cache.
const CHUNK: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were_written() {
        let memory = HostMemory::create("test", 4096).unwrap();
        memory.write(100, b"pages");
        let mut back = [0; 5];
        memory.read(100, &mut back);
        assert_eq!(&back, b"pages");
    }

    #[test]
    fn numbers_survive_at_any_offset_and_length() {
        let memory = HostMemory::create("test", 8192).unwrap();
        let numbers: Vec<f32> = (0..1300).map(|i| i as f32 / 4.0).collect();
        let mut back = vec![0.0; numbers.len()];
        memory.write_f16(3, &numbers);
        memory.read_f16(3, &mut back);
        assert_eq!(numbers, back);
        let small: Vec<f32> = (0..128).map(|i| i as f32).collect();
        let mut back = vec![0.0; small.len()];
        memory.write_bf16(1, &small);
        memory.read_bf16(1, &mut back);
        assert_eq!(small, back);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 4095 of 4096")]
    fn nothing_outside_is_touched() {
        HostMemory::create("test", 4096)
            .unwrap()
            .write(4095, &[0, 0]);
    }

    #[test]
    fn a_second_mapping_of_the_descriptor_sees_the_same_bytes() {
        let memory = HostMemory::create("test", 4096).unwrap();
        let fd = memory.descriptor().unwrap().try_clone_to_owned().unwrap();
        let twin = HostMemory::map(fd, 4096).unwrap();
        memory.write(0, &[7]);
        let mut back = [0];
        twin.read(0, &mut back);
        assert_eq!(back, [7]);
    }

    #[test]
    fn no_memory_is_an_error() {
        assert!(HostMemory::create("test", 0).is_err());
    }
}
