# Parameters: as published with filebench 1.5 (randomwrite.f). The text is ours.
# Writes to random places of one file.
set $dir=/
set $filesize=5g
set $iosize=8k
set $nthreads=1
set $workingset=0
set $directio=0
set $runtime=60

define file name=largefile,path=$dir,size=$filesize,prealloc,reuse,paralloc

define process name=writer,instances=1 {
  thread name=writer,memsize=5m,instances=$nthreads {
    flowop write name=write,filename=largefile,iosize=$iosize,random,workingset=$workingset,directio=$directio
  }
}

create files
# Not in the published one: what was laid out is on disk before the run.
system "sync"

run $runtime
