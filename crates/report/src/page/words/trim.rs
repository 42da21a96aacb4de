//! Texts of paper inode-trim.

use super::texts;

texts! {
    TRIM_TITLE: "An efficient file deletion mechanism of Ext4 on flash storage", "플래시 스토리지 기반 Ext4 파일시스템의 효율적인 파일 삭제 기법";
    TRIM_SAYS: "Ext4 discards the data blocks of a deleted file but never an inode-table block, so the flash holds dead inodes in valid pages, which garbage collection copies. The proposed method checks the 16 bitmap bits of an inode-table block whenever one becomes 0, and discards the block when all are 0.",
        "Ext4는 삭제된 파일의 데이터 블록은 trim하지만 아이노드 테이블 블록은 trim하지 않아, 플래시는 죽은 아이노드를 유효한 페이지로 간직하고 가비지 컬렉션 때 복사합니다. 제안 기법은 아이노드 비트가 0이 될 때 같은 아이노드 블록에 속하는 16비트를 살펴 모두 0이면 그 블록도 trim합니다.";
    TRIM_SETUP: "Ext4 of Linux 3.18.25 with online discard; 2000 files of 4 KiB created, synced, deleted, synced; 8 GiB on ssd-128 (assumed). Counted are pages of the run that are valid after a clean unmount, without the journal.",
        "온라인 discard를 켠 3.18.25의 Ext4에서 4 KiB 파일 2000개를 만들고 sync, 삭제하고 sync했습니다. ssd-128의 8 GiB(가정). 실행이 기록한 페이지 가운데 정상 언마운트 뒤에도 유효한 것을 세며 저널 영역은 뺍니다.";
    TRIM_FIGURE: "Valid flash pages after 2000 files were deleted", "파일 2000개를 삭제한 뒤 유효한 플래시 페이지";
    TRIM_FIGURE_CAPTION: "By contents, without the journal. Naive discards as the paper describes, and the next checkpoint rewrites the block; safe replaces that write by the discard.",
        "페이지의 내용별로 나누었으며 저널은 뺐습니다. ‘단순’은 논문의 서술대로 trim하지만 다음 체크포인트가 그 블록을 다시 씁니다. ‘안전’은 그 쓰기를 discard로 대신합니다.";
    TRIM_PAGES: "valid pages", "유효 페이지";
    TRIM_TABLE: "The runs in full", "실행별 전체 수치";
    TRIM_TABLE_CAPTION: "Valid pages without the journal, right after the deletion, 60 s later, and after the unmount (with the journal in the next column); tables: discarded inode-table blocks; discards: number of discards.",
        "저널을 뺀 유효 페이지 수로, 삭제 직후, 60초 뒤, 언마운트 뒤의 값입니다(그 다음 열은 저널 포함). 테이블: trim된 아이노드 테이블 블록 수. discard: 전체 횟수.";
    TRIM_DELETED: "deleted", "삭제 직후";
    TRIM_LATER: "+60 s", "60초 뒤";
    TRIM_UNMOUNTED: "unmounted", "언마운트 뒤";
    TRIM_JOURNAL: "+ journal", "저널 포함";
    TRIM_TABLES: "tables", "테이블";
    TRIM_DISCARDS: "discards", "discard 횟수";
    TRIM_EMPTY: "flash blocks without a valid page", "유효 페이지가 없는 플래시 블록";
    TRIM_HALF: "every second file deleted, safe", "두 개마다 하나 삭제, 안전";
    TRIM_MOST: "15 of each 16 deleted, safe", "16개 중 15개 삭제, 안전";
    TRIM_OTHERS: "Other layouts and programs", "다른 배치와 프로그램";
    TRIM_OTHERS_CAPTION: "Valid pages after the unmount, without the journal.", "언마운트 뒤 저널을 뺀 유효 페이지 수입니다.";
    TRIM_VARIED: "Parameters that the paper does not give, varied", "논문이 밝히지 않은 조건을 바꾼 결과";
    TRIM_WEAR: "Write amplification of an aged drive, nearly full", "거의 가득 찬 오래된 드라이브의 쓰기 증폭";
    TRIM_WEAR_CAPTION: "Future work of the paper. Ext4 of Linux 6.18 on 4 GiB; slots programmed / slots written.", "논문의 향후 과제입니다. 4 GiB 드라이브의 6.18 Ext4에서 기록 요청 대비 실제 프로그램된 슬롯의 비율입니다.";
    TRIM_WEAR_TABLE: "Real workloads on an aged drive", "오래된 드라이브에서의 실제 워크로드";
    TRIM_WEAR_TABLE_CAPTION: "Slots of 4 KiB. Latency of an fsync, a buffered write of a file, an insert, a sync.", "4 KiB 슬롯 단위. 지연 시간은 fsync, 파일 쓰기(buffered), insert, sync의 것입니다.";
    TRIM_WORK: "workload", "워크로드";
    TRIM_MODE: "trim", "trim 방식";
    TRIM_WAF: "write amplification", "쓰기 증폭(WAF)";
    TRIM_WRITTEN: "written", "기록";
    TRIM_COPIED: "copied", "복사";
    TRIM_ERASES: "erases", "소거";
    TRIM_RATE: "operations per second", "초당 작업";
    TRIM_ONLY_DELETED: "safe, deleted only", "안전, 삭제분만";
}
