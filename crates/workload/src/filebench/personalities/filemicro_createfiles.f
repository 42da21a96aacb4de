# Parameters: as published with filebench 1.5 (filemicro_createfiles.f). The text is ours.
# Makes small files in one directory until `count` flowops are done.
set $dir=/
set $count=15000
set $filesize=1k
set $iosize=1m
set $meandirwidth=100000
set $nfiles=20000
set $nthreads=1

# The published one has no mode, and ends without a result.
set mode quit firstdone

define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=50

define process name=maker,instances=1 {
  thread name=maker,memsize=10m,instances=$nthreads {
    flowop createfile name=new,filesetname=bigfileset,fd=1
    flowop writewholefile name=new-write,filesetname=bigfileset,fd=1,iosize=$iosize
    flowop closefile name=new-close,fd=1
    flowop finishoncount name=finish,value=$count
  }
}

run
