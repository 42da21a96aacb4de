//! What each stage and each part of the device's work is, in a line.

use super::names::{ELEVATOR, PREPARE, WAIT};

/// What a stage is.
pub(crate) fn of_stage(stage: &str) -> String {
    if let Some(kind) = stage.strip_prefix(PREPARE) {
        return format!("CPU time of the host until the drive has the request: {kind}");
    }
    if let Some(kind) = stage.strip_prefix(ELEVATOR) {
        return format!("the request waits in the I/O scheduler: {kind}");
    }
    let Some(kind) = stage.strip_prefix(WAIT) else {
        return match stage {
            "wake up and return" => "CPU time of the host from the last completion to the return",
            "runnable, no CPU free" => "the task is runnable, and every CPU is busy",
            "sleep" => "a timer ends the wait",
            _ => "no recorded event ends the wait",
        }
        .to_owned();
    };
    let what = match kind {
        "pre-flush" => "the drive writes its volatile cache to flash before the record (PREFLUSH)",
        "post-flush" => "the drive writes that cache to flash after the record, as it has no FUA",
        "flush" => "the drive writes its volatile cache to flash",
        "requests ahead in the device" => "the drive is busy with other requests",
        "ordered data of other files" => {
            "the drive has data of other files that the same transaction allocated (data=ordered)"
        }
        "commit record" => "the drive has the block that makes the transaction valid",
        "fast commit" => "the drive has the records of all that changed since the last commit",
        "i-transaction" => "the drive has the records of the file that is synced, in a core's area",
        "journal blocks" => "the drive has the descriptor and metadata blocks of the transaction",
        "checkpoint writes" => "the drive has metadata that a checkpoint writes in place",
        "data" => "the drive has data of the file",
        other => return format!("the drive has the request: {other}"),
    };
    what.to_owned()
}

/// What a part of the device's work is; `None`: it says so itself.
pub(crate) fn of_part(part: &str) -> Option<&'static str> {
    Some(match part {
        "" => "the model of this drive has no finer parts",
        "decode" => "the controller fetches and decodes the command",
        "firmware" => "the controller completes the command",
        "queue in device" | "queue for controller" => "other commands are ahead in the controller",
        "queue for link" => "other transfers are ahead on the host's link",
        "queue for die" | "queue for channel" => "other work is ahead on the die or its channel",
        "transfer to buffer" => "data go over the host's link into the drive's cache",
        "transfer to host" => "data go over the link to the host",
        "transfer to die" => "data go from the cache over the channel to the die's register",
        "program" => "the die programs the page: the cells' own time",
        "read" => "the die reads the page",
        "erase" => "the die erases a block",
        _ => return None,
    })
}
