//! Names that documents use for cases, classes of blocks and things that are counted.

use super::{Lang, Text, texts};

texts! {
    N_ALLOC: "allocating writes", "할당 쓰기";
    N_EXTEND: "non-allocating writes", "비할당 쓰기";
    N_OVER: "same-size overwrite", "같은 크기 덮어쓰기";
    N_DATA: "data", "데이터";
    N_JOURNAL: "journal", "저널";
    N_COMMIT: "commit record", "커밋 블록";
    N_INODE_TABLE: "inode table", "아이노드 테이블";
    N_BLOCK_BITMAP: "block bitmap", "블록 비트맵";
    N_INODE_BITMAP: "inode bitmap", "아이노드 비트맵";
    N_GDT: "group descriptors", "그룹 디스크립터";
    N_SUPER: "super block", "수퍼블록";
    N_DIRECTORY: "directory", "디렉터리";
    N_FLUSH: "flush", "플러시";
    N_NODE: "node", "노드";
    N_INODE: "inode", "아이노드";
    N_PREPARE: "prepare and dispatch", "준비와 디스패치";
    N_WAIT: "wait", "대기";
    N_RETURN: "wake up and return", "깨어나 반환";
    N_AHEAD: "requests ahead in the device", "장치에 앞서 간 요청";
    N_NO_DISCARD: "no discard", "discard 없음";
    N_NAIVE: "inode trim, naive", "아이노드 trim, 단순";
    N_SAFE: "inode trim, safe", "아이노드 trim, 안전";
    N_MODIFIED: "modified (no create, no delete)", "수정본(생성·삭제 없음)";
}

/// A name that documents use, in a language; itself if it is not one of ours.
pub fn name(raw: &str, lang: Lang) -> String {
    let text: Option<Text> = match raw {
        "alloc" => Some(N_ALLOC),
        "extend" => Some(N_EXTEND),
        "over" => Some(N_OVER),
        "data" => Some(N_DATA),
        "journal" => Some(N_JOURNAL),
        "commit" | "journal_commit" => Some(N_COMMIT),
        "inode_table" => Some(N_INODE_TABLE),
        "block_bitmap" => Some(N_BLOCK_BITMAP),
        "inode_bitmap" => Some(N_INODE_BITMAP),
        "gdt" => Some(N_GDT),
        "super" => Some(N_SUPER),
        "directory" => Some(N_DIRECTORY),
        "flush" => Some(N_FLUSH),
        "node" => Some(N_NODE),
        "inode" => Some(N_INODE),
        "prepare and dispatch" => Some(N_PREPARE),
        "wait" => Some(N_WAIT),
        "wake up and return" => Some(N_RETURN),
        "requests ahead in the device" => Some(N_AHEAD),
        "no discard" => Some(N_NO_DISCARD),
        "inode trim, naive" => Some(N_NAIVE),
        "inode trim, safe" => Some(N_SAFE),
        "modified" | "nocreatedelete" => Some(N_MODIFIED),
        _ => None,
    };
    text.map_or_else(|| raw.to_owned(), |t| t.of(lang).to_owned())
}
