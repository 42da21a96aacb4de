//! The ioengines of fio: those that run here, and why the others do not.

use super::job::Engine;

/// Those that run.
pub const SUPPORTED: &str = "sync, psync, pvsync, pvsync2, libaio, io_uring, posixaio, mmap, splice, falloc, ftruncate, null, filecreate, filestat, filedelete";

/// The engine of a name. Errors: why it is not supported.
pub fn engine(name: &str) -> Result<Engine, String> {
    let why = match name {
        "sync" => return Ok(Engine::Sync),
        "psync" => return Ok(Engine::Psync),
        "pvsync" | "pvsync2" => return Ok(Engine::Pvsync),
        "libaio" => return Ok(Engine::Libaio),
        "io_uring" => return Ok(Engine::IoUring),
        "posixaio" => return Ok(Engine::Posixaio),
        "mmap" => return Ok(Engine::Mmap),
        "splice" => return Ok(Engine::Splice),
        "falloc" => return Ok(Engine::Falloc),
        "ftruncate" => return Ok(Engine::Ftruncate),
        "null" => return Ok(Engine::Null),
        "filecreate" => return Ok(Engine::Filecreate),
        "filestat" => return Ok(Engine::Filestat),
        "filedelete" => return Ok(Engine::Filedelete),
        "rbd" | "rados" | "net" | "netsplice" | "rdma" | "http" | "nfs" | "nbd" | "gfapi"
        | "gfapi_async" | "libhdfs" | "libiscsi" | "dfs" => "it reaches storage over a network",
        "spdk" | "spdk_bdev" | "io_uring_cmd" | "sg" | "libblkio" | "libzbc" | "xnvme"
        | "libcufile" | "libhipfile" | "libpmem" | "pmemblk" | "dev-dax" | "mtd" => {
            "it bypasses the file systems and the block layer"
        }
        "dircreate" | "dirstat" | "dirdelete" => "fio 3.33 has no such engine",
        "e4defrag" => "it changes the layout of files, and does no I/O",
        "cpuio" | "exec" => "it does no I/O",
        _ => "it is not one of the engines that Writepath has",
    };
    Err(format!("engine `{name}` is not supported: {why} (supported: {SUPPORTED})"))
}
