# Parameters: as published with filebench 1.5 (filemicro_writefsync.f). The text is ours.
# Appends, an fsync after each `writeiters`, so often.
set $dir=/
set $iosize=8k
set $writeiters=1024
set $fsynccount=128

set mode quit firstdone

define file name=bigfile,path=$dir,size=0,prealloc

define process name=writer,instances=1 {
  thread name=writer,memsize=10m,instances=1 {
    flowop appendfile name=append,filename=bigfile,iosize=$iosize,iters=$writeiters
    flowop fsync name=sync
    flowop finishoncount name=finish,value=$fsynccount,target=sync
  }
}

run
