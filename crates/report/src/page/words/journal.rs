//! Texts of paper journal-conflict.

use super::texts;

texts! {
    CONFLICT_TITLE: "Journal conflicts in BarrierFS", "BarrierFS의 저널 충돌과 확장성";
    CONFLICT_SAYS: "A metadata buffer that a thread wants for the running transaction may still belong to a committing transaction: a journal conflict. BarrierFS, with several transactions committing in parallel, has more of them than EXT4. The paper counts conflicts by block type and argues that they limit the scaling of BarrierFS.",
        "스레드가 러닝 트랜잭션에 넣으려는 메타데이터 버퍼가 아직 커밋 중인 트랜잭션에 속해 있는 상황이 저널 충돌이며, 여러 트랜잭션을 병렬로 커밋하는 BarrierFS는 EXT4보다 이를 더 자주 만납니다. 논문은 블록 유형별로 충돌을 세고, 저널 충돌이 BarrierFS의 확장성을 가로막는다고 주장합니다.";
    CONFLICT_SETUP: "BarrierFS and EXT4 of 3.10.61, F2FS; class of a Samsung 850 Pro 256 GB, i7-3770 (assumed costs); filebench varmail, and varmail without create and delete. A conflict is a get_write_access call that finds an older owner.",
        "3.10.61의 BarrierFS와 EXT4, 그리고 F2FS. 삼성 850 Pro 256 GB급, i7-3770(비용은 가정). filebench varmail과 생성·삭제를 뺀 varmail입니다. get_write_access 호출이 이전 소유자를 발견하면 충돌 하나로 셉니다.";
    CONFLICT_TABLE: "Conflicts of {0}, {1}, {2} threads", "{0}의 저널 충돌, {1}, 스레드 {2}개";
    CONFLICT_TABLE_CAPTION: "{0} in {1} operations: {2} %; {3} operations per second. S super block, G group descriptors, DB data bitmap, IB inode bitmap, IT inode table, D directory.",
        "작업 {1}개에서 {0}번: {2} %, 초당 작업 {3}개. S 수퍼블록, G 그룹 디스크립터, DB 데이터 비트맵, IB 아이노드 비트맵, IT 아이노드 테이블, D 디렉터리 블록.";
    CONFLICT_SHARES: "Shares of block types in the conflicts, {0}", "저널 충돌에서 블록 유형의 비율, {0}";
    CONFLICT_SHARES_CAPTION: "Dashed ticks are the paper's shares, shaded areas the bands.", "점선 눈금은 논문의 비율, 음영은 허용 범위입니다.";
    CONFLICT_SHARE: "share of conflicts", "충돌의 비율";
    CONFLICT_TYPE: "block type", "블록 유형";
    CONFLICT_THREAD: "thread", "스레드";
    CONFLICT_GRAPH: "Operations per second, {0}", "초당 작업 수, {0}";
    CONFLICT_GRAPH_CAPTION: "DR guarantees durability, OD only order (EXT4-OD: mounted with nobarrier).", "DR은 영속성을 보장하고 OD는 순서만 보장합니다(EXT4-OD는 nobarrier로 마운트).";
    CONFLICT_THREADS: "threads", "스레드 수";
    CONFLICT_OPS: "operations per second", "초당 작업 수";
    CONFLICT_CURE: "Journaling without conflicts, {0}", "저널 충돌을 없앤 저널링, {0}";
    CONFLICT_CURE_CAPTION: "BFS-DR, then with buffer versions, coalescing and compound flushes added, as in CJFS; “no conflicts” is the rate without any conflict.",
        "BFS-DR에 메타데이터 버퍼의 다중 버전, 플러시 병합, 복합 트랜잭션을 차례로 더한 것으로 CJFS의 방식입니다. ‘no conflicts’는 충돌이 전혀 없을 때 남는 성능입니다.";
    CONFLICT_CURE_TABLE: "Effect of each technique, 8 threads, {0}", "각 요소의 효과, 스레드 8개, {0}";
    CONFLICT_PER_OP: "conflicts per operation", "작업당 충돌";
    CONFLICT_SLOT: "no free version", "빈 버전 없음";
    CONFLICT_SHADOW: "waits for I/O", "I/O 대기";
    CONFLICT_DELAYED: "delayed commits, %", "지연된 커밋(%)";
    CONFLICT_FSYNCS: "fsyncs per commit", "커밋당 fsync";
    CONFLICT_COALESCED: "coalesced", "병합";
    CONFLICT_FLUSHES: "flushes per fsync", "fsync당 플러시";
    CONFLICT_SYSTEM: "system", "시스템";
    CONFLICT_PER_OP_GRAPH: "Conflicts per operation, {0}", "작업당 저널 충돌, {0}";
    CONFLICT_PER_OP_CAPTION: "Of the systems in the graph that have a journal.", "그래프의 시스템 가운데 저널이 있는 것들입니다.";
    CONFLICT_CASES: "Handling of the conflicts of the tables", "표의 저널 충돌이 처리되는 방식";
    CONFLICT_CASES_CAPTION: "joined: already in the running transaction; frozen: a frozen copy exists; shadow: the buffer is being written, and the thread waits; copy: the thread makes a copy; logged: the log block is already written.",
        "joined: 이미 러닝 트랜잭션에 속함. frozen: 사본(frozen_data)이 있음. shadow: 기록 중이라 I/O를 기다림. copy: 사본을 만듦. logged: 로그 블록이 이미 기록됨.";
    CONFLICT_CASE: "case", "경우";
}
